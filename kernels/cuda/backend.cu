// The table of kernels/cuda: `cuda` if nvcc compiles it, `emu` if g++ does.
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
#define GRADUS_KERNEL(entry, ...) .entry = gpu::entry,
#include "kernels/entries.inc"
};

const Backend& GRADUS_TABLE() { return kGpu; }

#ifdef __CUDACC__
static __global__ void any_kernel() {}

const char* cuda_error() {
  cudaFuncAttributes attributes;
  const cudaError_t e = cudaFuncGetAttributes(&attributes, any_kernel);
  if (e == cudaSuccess) return nullptr;
  cudaGetLastError();  // clears the error; otherwise the next launch would report it
  return cudaGetErrorString(e);
}
#endif

}  // namespace gradus
