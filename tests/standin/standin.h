// cuBLAS's matrix product, as far as kernels/cuda calls it, for tests on machines without a GPU. The Makefile
// compiles matmul.cu in the namespace standin, with the headers of this folder in place of NVIDIA's. The
// stand-in checks what the real one asks of its callers, and refuses.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/kernels.h"
#include "tests/standin/cuda_runtime_api.h"

namespace gradus::standin {

// What a test may change of the machine that the library runs on, and what it may look at.
struct Machine {
  int gpu = 0;                                      // the current one; below 0: there is none
  int64_t cublas_handles = 0, cublas_products = 0;  // made, done
};
Machine& machine();

// `base` with the entries that call the library in place of its own.
Backend with_libraries(Backend base);

}  // namespace gradus::standin
