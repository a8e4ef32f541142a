#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

struct Scale {
  float alpha;
  __device__ float operator()(float x) const { return alpha * x; }
};

void scale(const Ctx& ctx, int64_t n, CBuf x, Out y, float alpha) {
  map(ctx, "scale", n, y, {{"x", x}}, Scale{alpha});
}

struct ScaleByRatio {
  const float *a, *b;
  __device__ float operator()(float x) const { return a[0] / b[0] * x; }
};

void scale_by_ratio_inplace(const Ctx& ctx, int64_t n, CBuf a, CBuf b, Out x) {
  constexpr const char* op = "scale_by_ratio_inplace";
  check_scale_by_ratio_inplace(a, b, x);
  visit_gpu(op, x.t, [&]<class T>() {
    map_as<T>(ctx, op, n, x, ScaleByRatio{a.as<float>(), b.as<float>()}, x.as<T>());
  });
}

}  // namespace gradus::GRADUS_GPU
