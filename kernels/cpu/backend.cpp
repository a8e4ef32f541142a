// The CPU's table of kernels.
#include "kernels/cpu/cpu.h"

namespace gradus {

static constexpr Backend kCpu = {
    .name = "cpu",
    .fill = cpu::fill,
    .cast = cpu::cast,
    .add = cpu::add,
    .scale = cpu::scale,
    .gelu_fwd = cpu::gelu_fwd,
    .gelu_bwd = cpu::gelu_bwd,
    .gelu_erf_fwd = cpu::gelu_erf_fwd,
    .gelu_erf_bwd = cpu::gelu_erf_bwd,
    .tanh_fwd = cpu::tanh_fwd,
    .tanh_bwd = cpu::tanh_bwd,
    .dropout = cpu::dropout,
    .bias_fwd = cpu::bias_fwd,
    .bias_bwd = cpu::bias_bwd,
    .layernorm_fwd = cpu::layernorm_fwd,
    .layernorm_bwd = cpu::layernorm_bwd,
    .softmax_fwd = cpu::softmax_fwd,
    .softmax_bwd = cpu::softmax_bwd,
    .cross_entropy_fwd = cpu::cross_entropy_fwd,
    .cross_entropy_bwd_inplace = cpu::cross_entropy_bwd_inplace,
    .embedding_fwd = cpu::embedding_fwd,
    .embedding_bwd = cpu::embedding_bwd,
    .matmul = cpu::matmul,
    .attention_plain_fwd = cpu::attention_plain_fwd,
    .attention_plain_bwd = cpu::attention_plain_bwd,
    .attention_flash_fwd = cpu::attention_flash_fwd,
    .attention_flash_bwd = cpu::attention_flash_bwd,
    .rotary = cpu::rotary,
    .grad_norm = cpu::grad_norm,
    .sgd = cpu::sgd,
    .adamw = cpu::adamw,
};

const Backend& cpu_backend() { return kCpu; }

}  // namespace gradus
