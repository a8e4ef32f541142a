#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// s = 1 / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): gelu(x) = x s.
inline __device__ float gelu_s(float x) {
  const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
  return 1.0f / (1.0f + expf(-2.0f * u));
}
struct GeluFwd {
  __device__ float operator()(float x) const { return x * gelu_s(x); }
};
// dy (s + x 2 s (1 - s) du/dx)
struct GeluBwd {
  __device__ float operator()(float x, float dy) const {
    const float s = gelu_s(x), du = 0.7978845608f * (1.0f + 3 * 0.044715f * x * x);
    return dy * (s + x * 2 * s * (1 - s) * du);
  }
};

void gelu_fwd(const Ctx& ctx, int64_t n, CBuf x, Out y) { map(ctx, "gelu_fwd", n, y, {{"x", x}}, GeluFwd()); }

void gelu_bwd(const Ctx& ctx, int64_t n, CBuf x, CBuf dy, Out dx) {
  map(ctx, "gelu_bwd", n, dx, {{"x", x}, {"dy", dy}}, GeluBwd());
}

}  // namespace gradus::GRADUS_GPU
