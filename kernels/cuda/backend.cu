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
    .tanh_fwd = gpu::tanh_fwd,
    .tanh_bwd = gpu::tanh_bwd,
    .dropout = gpu::dropout,
    .matmul = gpu::matmul,
    .grad_norm = gpu::grad_norm,
    .sgd = gpu::sgd,
    .adamw = gpu::adamw,
};

const Backend& GRADUS_TABLE() { return kGpu; }

}  // namespace gradus
