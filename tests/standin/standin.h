// cuBLAS's matrix product, as far as kernels/cuda calls it, for tests on machines without a GPU. The Makefile
// compiles matmul.cu in the namespace standin, with the headers of this folder in place of NVIDIA's. The
// stand-in checks the conditions that the real cuBLAS sets for its callers, and returns its errors.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/kernels.h"
#include "tests/standin/cuda_runtime_api.h"

namespace gradus::standin {

// The machine that the library runs on: a test may change the GPU and read the counts.
struct Machine {
  int gpu = 0;                                      // the current GPU; below 0: there is none
  int64_t cublas_handles = 0, cublas_products = 0;  // created, computed
};
Machine& machine();

// `base` with the entries that call the library in place of its own.
Backend with_libraries(Backend base);

}  // namespace gradus::standin
