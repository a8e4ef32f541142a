// y = x Phi(x), Phi(x) = 1/2 (1 + erf(x/sqrt(2))).   dy/dx = Phi(x) + x e^(-x^2/2) / sqrt(2 pi).
#include "kernels/cpu/io.h"

namespace gradus::cpu {

constexpr double kSqrtHalf = 0.7071067811865476, kPerSqrt2Pi = 0.3989422804014327;

template <class A>
A normal_cdf(A x) {
  return mul_add(A(0.5), verf(x * A(kSqrtHalf)), A(0.5));
}

void gelu_erf_fwd(const Ctx&, int64_t n, CBuf x, Out y) {
  check_dtype("gelu_erf_fwd", y.t, {{"x", x}});
  visit_float("gelu_erf_fwd", y.t, [&]<class T>() {
    using A = acc_t<T>;
    const T* in = x.as<T>();
    map<T>(n, y, [=](int64_t i) {
      const A v = load(in, i);
      return v * normal_cdf(v);
    });
  });
}

void gelu_erf_bwd(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx) {
  check_dtype("gelu_erf_bwd", dx.t, {{"x", x}, {"dy", dy}});
  visit_float("gelu_erf_bwd", dx.t, [&]<class T>() {
    using A = acc_t<T>;
    const T *in = x.as<T>(), *grad = dy.as<T>();
    map<T>(n, dx, [=](int64_t i) {
      const A v = load(in, i);
      return load(grad, i) * mul_add(v, A(kPerSqrt2Pi) * vexp(A(-0.5) * v * v), normal_cdf(v));
    });
  });
}

}  // namespace gradus::cpu
