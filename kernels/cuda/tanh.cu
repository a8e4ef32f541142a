#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

template <class T>
struct TanhFwd {
  const T* x;
  __device__ float operator()(int64_t i) const { return tanhf(load(x, i)); }
};

template <class T>
struct TanhBwd {
  const T *y, *dy;
  __device__ float operator()(int64_t i) const {
    const float v = load(y, i);
    return load(dy, i) * (1.0f - v * v);
  }
};

void tanh_fwd(const Ctx& ctx, int64_t n, CBuf x, Out y) {
  check_dtype("tanh_fwd", y.t, {{"x", x}});
  visit_gpu("tanh_fwd", y.t, [&]<class T>() { map<T>(ctx, "tanh_fwd", n, y, TanhFwd<T>{x.as<T>()}); });
}

void tanh_bwd(const Ctx& ctx, int64_t n, CBuf y, CBuf dy, Out dx) {
  check_dtype("tanh_bwd", dx.t, {{"y", y}, {"dy", dy}});
  visit_gpu("tanh_bwd", dx.t, [&]<class T>() {
    map<T>(ctx, "tanh_bwd", n, dx, TanhBwd<T>{y.as<T>(), dy.as<T>()});
  });
}

}  // namespace gradus::GRADUS_GPU
