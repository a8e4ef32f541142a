// The table of kernels/cuda: `cuda` where nvcc compiles it, `emu` where g++ does.
#include "kernels/cuda/gpu.h"

namespace gradus {

namespace gpu = GRADUS_GPU;

#ifdef __CUDACC__
#define GRADUS_NAME "cuda"
#define GRADUS_TABLE cuda_backend
#else
#define GRADUS_NAME "emu"
#define GRADUS_TABLE emu_backend
#endif

static constexpr Backend kGpu = {
    .name = GRADUS_NAME,
    .fill = gpu::fill,
    .cast = gpu::cast,
    .add = gpu::add,
    .scale = gpu::scale,
    .gelu_fwd = gpu::gelu_fwd,
    .gelu_bwd = gpu::gelu_bwd,
    .gelu_erf_fwd = gpu::gelu_erf_fwd,
    .gelu_erf_bwd = gpu::gelu_erf_bwd,
    .tanh_fwd = gpu::tanh_fwd,
    .tanh_bwd = gpu::tanh_bwd,
    .dropout = gpu::dropout,
    .bias_fwd = gpu::bias_fwd,
    .bias_bwd = gpu::bias_bwd,
    .layernorm_fwd = gpu::layernorm_fwd,
    .layernorm_bwd = gpu::layernorm_bwd,
    .softmax_fwd = gpu::softmax_fwd,
    .softmax_bwd = gpu::softmax_bwd,
    .cross_entropy_fwd = gpu::cross_entropy_fwd,
    .cross_entropy_bwd_inplace = gpu::cross_entropy_bwd_inplace,
    .embedding_fwd = gpu::embedding_fwd,
    .embedding_bwd = gpu::embedding_bwd,
    .matmul = gpu::matmul,
    .attention_plain_fwd = gpu::attention_plain_fwd,
    .attention_plain_bwd = gpu::attention_plain_bwd,
    .attention_flash_fwd = gpu::attention_flash_fwd,
    .attention_flash_bwd = gpu::attention_flash_bwd,
    .rotary = gpu::rotary,
    .grad_norm = gpu::grad_norm,
    .sgd = gpu::sgd,
    .adamw = gpu::adamw,
};

const Backend& GRADUS_TABLE() { return kGpu; }

}  // namespace gradus
