#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

inline __device__ float normal_cdf(float x) { return 0.5f + 0.5f * erff(0.7071067812f * x); }
struct GeluErfFwd {
  __device__ float operator()(float x) const { return x * normal_cdf(x); }
};
// dy (Phi(x) + x e^(-x^2/2) / sqrt(2 pi))
struct GeluErfBwd {
  __device__ float operator()(float x, float dy) const {
    return dy * (normal_cdf(x) + x * 0.3989422804f * expf(-0.5f * x * x));
  }
};

void gelu_erf_fwd(const Ctx& ctx, int64_t n, CBuf x, Out y) {
  map(ctx, "gelu_erf_fwd", n, y, {{"x", x}}, GeluErfFwd());
}

void gelu_erf_bwd(const Ctx& ctx, int64_t n, CBuf x, CBuf dy, Out dx) {
  map(ctx, "gelu_erf_bwd", n, dx, {{"x", x}, {"dy", dy}}, GeluErfBwd());
}

}  // namespace gradus::GRADUS_GPU
