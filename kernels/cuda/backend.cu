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
    .gelu_fwd = gpu::gelu_fwd,
    .gelu_bwd = gpu::gelu_bwd,
    .matmul = gpu::matmul,
    .attention_plain_fwd = gpu::attention_plain_fwd,
    .attention_plain_bwd = gpu::attention_plain_bwd,
    .attention_flash_fwd = gpu::attention_flash_fwd,
    .attention_flash_bwd = gpu::attention_flash_bwd,
};

const Backend& GRADUS_TABLE() { return kGpu; }

}  // namespace gradus
