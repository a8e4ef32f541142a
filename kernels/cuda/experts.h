// Shared by the kernels of a mixture of experts.
#pragma once
#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// Kernels with one warp per item: the index of this warp's item. A warp without an item returns as a whole.
constexpr int kWarpsOfBlock = kThreads / kWarp;
inline __device__ int64_t item_of_warp() { return int64_t(blockIdx.x) * kWarpsOfBlock + threadIdx.x / kWarp; }
inline __device__ int lane_of_warp() { return int(threadIdx.x % kWarp); }
template <class... P, class... A>
void launch_warps(const Ctx& ctx, const char* op, int64_t n, void (*kernel)(P...), A... args) {
  launch(ctx, op, blocks_for(n, kWarpsOfBlock), kThreads, 0, kernel, args...);
}

inline __device__ int32_t expert_at(int64_t choice, const ExpertShape& s, const int32_t* experts) {
  const int32_t e = experts[choice];
  device_check(e >= 0 && e < s.E, "experts: expert", e, "does not exist; see token", choice / s.chosen);
  return e;
}

}  // namespace gradus::GRADUS_GPU
