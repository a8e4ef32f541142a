// The GPU's rungs: C = A B with A (M, K), B (K, N), C (M, N), fp32, row-major. The same source runs on emu,
// where its memory traffic is counted, and on cuda, where it is fast.
#pragma once
#include <string>
#include <vector>

#include "kernels/emu/traffic.h"
#include "kernels/kernels.h"

namespace gradus {

struct GemmSize {
  int64_t M, N, K;
  double flops() const { return 2.0 * double(M) * double(N) * double(K); }
};

struct GpuRung {
  std::string name;
  void (*multiply)(const Ctx&, const GemmSize&, const float* a, const float* b, float* c);  // device memory
  emu::Traffic (*predicted)(const GemmSize&);  // for sizes that are multiples of 128; nullptr for a library
};

namespace emu {
std::vector<GpuRung> gpu_rungs();
std::vector<GpuRung> my_gpu_rungs();  // the same, with yours from faster.cu (exercise 01.10)
}  // namespace emu
namespace cuda {  // in builds with CUDA=1
std::vector<GpuRung> gpu_rungs();
std::vector<GpuRung> my_gpu_rungs();
}  // namespace cuda

}  // namespace gradus
