// Memory whose accesses are counted where that is possible: on a GPU these are plain pointers, on emu each
// access is also added to emu::traffic(). For kernels that teach what memory costs.
#pragma once
#include "kernels/cuda/compiler.h"

namespace gradus::GRADUS_GPU {

#ifdef __CUDACC__
struct Where {  // nobody asks where on a GPU
  static constexpr Where current() { return {}; }
};
#endif

// Global memory. wanted == false: this lane has nothing to read (it gets 0) or to write, but the others of
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
  // Four neighbours by one instruction; p + i is at a multiple of 16 bytes.
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

// x = from_shared(tile[i][j]), or four neighbours of it by one instruction.
__device__ inline float from_shared(const float& x) {
  GRADUS_COUNT(count_shared_load());
  return x;
}
__device__ inline float4 from_shared4(const float& x) {
  GRADUS_COUNT(count_shared_load());
  return *reinterpret_cast<const float4*>(&x);
}

}  // namespace gradus::GRADUS_GPU
