#include "tests/standin/standin.h"

#include <utility>

namespace gradus::standin {

#include "kernels/entries.inc"

Machine& machine() {
  static Machine machine;
  return machine;
}

static thread_local cudaError_t last_error = cudaSuccess;
cudaError_t cudaGetDevice(int* device) {
  *device = machine().gpu;
  return last_error = machine().gpu >= 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess ? "no error" : "no CUDA-capable device is detected";
}

// matmul.cu calls it before the product that is added to the bias.
void bias_fwd(const Ctx& ctx, RowShape s, CBuf x, CBuf b, Out y) { emu_backend().bias_fwd(ctx, s, x, b, y); }

Backend with_libraries(Backend base) {
  base.name = "standin";
  base.matmul = matmul;
  base.matmul_bias = matmul_bias;
  return base;
}

}  // namespace gradus::standin
