// Memory whose accesses are counted on emu: there each access is added to emu::traffic(); on a GPU these are
// plain pointers. For kernels that teach the cost of memory traffic.
#pragma once
#include "kernels/cuda/compiler.h"

namespace gradus::GRADUS_GPU {

#ifdef __CUDACC__
struct Where {  // empty: a GPU counts no accesses
  static constexpr Where current() { return {}; }
};
#endif

// Global memory. wanted == false: this lane reads nothing (it gets 0) or writes nothing, but other lanes of
// its warp may.
class Global {
 public:
  Global(const float* p) : p_(const_cast<float*>(p)) {}

  __device__ float load(int64_t i, bool wanted = true,
                        [[maybe_unused]] Where where = Where::current()) const {
    GRADUS_COUNT(count_global(Access::Load, p_ + i, 4, wanted, where));
    return wanted ? p_[i] : 0;
  }
  __device__ void store(int64_t i, float v, bool wanted = true,
                        [[maybe_unused]] Where where = Where::current()) const {
    GRADUS_COUNT(count_global(Access::Store, p_ + i, 4, wanted, where));
    if (wanted) p_[i] = v;
  }
  // Four adjacent elements by one instruction; p + i must be a multiple of 16 bytes.
  __device__ float4 load4(int64_t i, bool wanted = true,
                          [[maybe_unused]] Where where = Where::current()) const {
    GRADUS_COUNT(count_global(Access::Load, p_ + i, 16, wanted, where));
    return wanted ? *reinterpret_cast<const float4*>(p_ + i) : float4{0, 0, 0, 0};
  }
  __device__ void store4(int64_t i, float4 v, bool wanted = true,
                         [[maybe_unused]] Where where = Where::current()) const {
    GRADUS_COUNT(count_global(Access::Store, p_ + i, 16, wanted, where));
    if (wanted) *reinterpret_cast<float4*>(p_ + i) = v;
  }

 private:
  float* p_;
};

// x = from_shared(tile[i][j]); from_shared4 loads four adjacent elements by one instruction.
__device__ inline float from_shared(const float& x) {
  GRADUS_COUNT(count_shared_load());
  return x;
}
__device__ inline float4 from_shared4(const float& x) {
  GRADUS_COUNT(count_shared_load());
  return *reinterpret_cast<const float4*>(&x);
}

}  // namespace gradus::GRADUS_GPU
