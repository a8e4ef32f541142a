// The table that computes nothing: shapes, dtypes and memory are real, numbers are not there.
#include "kernels/kernels.h"

namespace gradus {

template <class... Arguments>
static void nothing(Arguments...) {}

static constexpr Backend kMeta = {
    .name = "meta",
    .fill = nothing,
    .cast = nothing,
    .add = nothing,
    .scale = nothing,
    .gelu_fwd = nothing,
    .gelu_bwd = nothing,
    .gelu_erf_fwd = nothing,
    .gelu_erf_bwd = nothing,
    .tanh_fwd = nothing,
    .tanh_bwd = nothing,
    .dropout = nothing,
    .bias_fwd = nothing,
    .bias_bwd = nothing,
    .layernorm_fwd = nothing,
    .layernorm_bwd = nothing,
    .softmax_fwd = nothing,
    .softmax_bwd = nothing,
    .cross_entropy_fwd = nothing,
    .cross_entropy_bwd_inplace = nothing,
    .embedding_fwd = nothing,
    .embedding_bwd = nothing,
    .matmul = nothing,
    .attention_plain_fwd = nothing,
    .attention_plain_bwd = nothing,
    .attention_flash_fwd = nothing,
    .attention_flash_bwd = nothing,
    .rotary = nothing,
    .grad_norm = nothing,
    .sgd = nothing,
    .adamw = nothing,
};

const Backend& meta_backend() { return kMeta; }

}  // namespace gradus
