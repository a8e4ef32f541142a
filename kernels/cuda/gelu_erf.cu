#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

inline __device__ float normal_cdf(float x) { return 0.5f + 0.5f * erff(0.7071067812f * x); }

template <class T>
struct GeluErfFwd {
  const T* x;
  __device__ float operator()(int64_t i) const { return load(x, i) * normal_cdf(load(x, i)); }
};

// dy (Phi(x) + x e^(-x^2/2) / sqrt(2 pi))
template <class T>
struct GeluErfBwd {
  const T *x, *dy;
  __device__ float operator()(int64_t i) const {
    const float v = load(x, i);
    return load(dy, i) * (normal_cdf(v) + v * 0.3989422804f * expf(-0.5f * v * v));
  }
};

void gelu_erf_fwd(const Ctx& ctx, int64_t n, CBuf x, Out y) {
  check_dtype("gelu_erf_fwd", y.t, {{"x", x}});
  visit_gpu("gelu_erf_fwd", y.t,
            [&]<class T>() { map<T>(ctx, "gelu_erf_fwd", n, y, GeluErfFwd<T>{x.as<T>()}); });
}

void gelu_erf_bwd(const Ctx& ctx, int64_t n, CBuf x, CBuf dy, Out dx) {
  check_dtype("gelu_erf_bwd", dx.t, {{"x", x}, {"dy", dy}});
  visit_gpu("gelu_erf_bwd", dx.t, [&]<class T>() {
    map<T>(ctx, "gelu_erf_bwd", n, dx, GeluErfBwd<T>{x.as<T>(), dy.as<T>()});
  });
}

}  // namespace gradus::GRADUS_GPU
