// NVIDIA's libraries, as far as kernels/cuda calls them, for tests on machines without a GPU: cuBLAS's matrix
// product, and of cuDNN what interprets the graph of attention. The Makefile compiles matmul.cu,
// attention_flash.cu, attention_cudnn.cu and cudnn_graph.cu once more, in the namespace standin, with the
// headers of this folder in place of NVIDIA's. The stand-ins check what the real ones ask of their callers,
// and refuse.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/kernels.h"
#include "tests/standin/cudnn.h"

namespace gradus::standin {

// What a test may change of the machine that the libraries run on, and what it may look at.
struct Machine {
  int gpu = 0;                                   // the current one; below 0: there is none
  size_t cudnn_version = 91900;                  // 9.19.0
  cudnnStatus_t refusal = CUDNN_STATUS_SUCCESS;  // what cuDNN answers when it is asked for a plan,
  bool silently = false;                         // or only its last error says, and there are no proposals
  int64_t bytes_a_score = 2;  // of the workspace that attention's backward needs for each of (B, H, T, T)
  int64_t cublas_handles = 0, cublas_products = 0, cudnn_executions = 0;  // made, done
};
Machine& machine();

// `base` with the entries that call the libraries in place of its own.
Backend with_libraries(Backend base);

}  // namespace gradus::standin
