#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// s = 1 / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): gelu(x) = x s.
inline __device__ float gelu_s(float x) {
  const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
  return 1.0f / (1.0f + expf(-2.0f * u));
}

template <class T>
struct GeluFwd {
  const T* x;
  __device__ float operator()(int64_t i) const { return load(x, i) * gelu_s(load(x, i)); }
};

// dy (s + x 2 s (1 - s) du/dx)
template <class T>
struct GeluBwd {
  const T *x, *dy;
  __device__ float operator()(int64_t i) const {
    const float v = load(x, i), s = gelu_s(v);
    const float du = 0.7978845608f * (1.0f + 3 * 0.044715f * v * v);
    return load(dy, i) * (s + v * 2 * s * (1 - s) * du);
  }
};

void gelu_fwd(const Ctx& ctx, int64_t n, CBuf x, Out y) {
  check_dtype("gelu_fwd", y.t, {{"x", x}});
  visit_gpu("gelu_fwd", y.t, [&]<class T>() { map<T>(ctx, "gelu_fwd", n, y, GeluFwd<T>{x.as<T>()}); });
}

void gelu_bwd(const Ctx& ctx, int64_t n, CBuf x, CBuf dy, Out dx) {
  check_dtype("gelu_bwd", dx.t, {{"x", x}, {"dy", dy}});
  visit_gpu("gelu_bwd", dx.t, [&]<class T>() {
    map<T>(ctx, "gelu_bwd", n, dx, GeluBwd<T>{x.as<T>(), dy.as<T>()});
  });
}

}  // namespace gradus::GRADUS_GPU
