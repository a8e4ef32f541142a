#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

template <class X>
struct Cast {
  const X* x;
  __device__ float operator()(int64_t i) const { return load(x, i); }
};

void cast(const Ctx& ctx, int64_t n, CBuf x, Out y) {
  visit_gpu("cast", x.t, [&]<class X>() {
    visit_gpu("cast", y.t, [&]<class Y>() { map<Y>(ctx, "cast", n, y, Cast<X>{x.as<X>()}); });
  });
}

}  // namespace gradus::GRADUS_GPU
