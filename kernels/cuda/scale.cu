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

void scale_by_ratio(const Ctx& ctx, int64_t n, CBuf x, CBuf a, CBuf b, Out y) {
  check_scale_by_ratio(x, a, b, y);
  map(ctx, "scale_by_ratio", n, y, {{"x", x}}, ScaleByRatio{a.as<float>(), b.as<float>()});
}

}  // namespace gradus::GRADUS_GPU
