#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

struct Same {
  __device__ float operator()(float x) const { return x; }
};

void cast(const Ctx& ctx, int64_t n, CBuf x, Out y) {
  visit_gpu("cast", x.t, [&]<class X>() {
    visit_gpu("cast", y.t, [&]<class Y>() { map_as<Y>(ctx, "cast", n, y, Same(), x.as<X>()); });
  });
}

}  // namespace gradus::GRADUS_GPU
