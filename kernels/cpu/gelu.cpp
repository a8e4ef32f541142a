// y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).   dy/dx = 1/2 (1 + t) + x/2 (1 - t^2) u', t =
// tanh(u). With s = 1 / (1 + e^(-2u)): 1/2 (1 + t) = s and 1/2 (1 - t^2) = 2 s (1 - s), which takes one exp
// and one division.
#include "kernels/cpu/io.h"

namespace gradus::cpu {

constexpr double kScale = 0.7978845608028654, kCubic = 0.044715;  // sqrt(2/pi), and the paper's constant

// e^(-2u), so that s = 1 / (1 + it).
template <class A>
A gelu_exp(A x) {
  return vexp(x * mul_add(x * x, A(-2 * kScale * kCubic), A(-2 * kScale)));
}

void gelu_fwd(const Ctx&, int64_t n, CBuf x, Out y) {
  check_dtype("gelu_fwd", y.t, {{"x", x}});
  visit_float("gelu_fwd", y.t, [&]<class T>() {
    using A = acc_t<T>;
    const T* in = x.as<T>();
    map<T>(n, y, [=](int64_t i) {
      const A v = load(in, i);
      return v / (A(1) + gelu_exp(v));
    });
  });
}

void gelu_bwd(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx) {
  check_dtype("gelu_bwd", dx.t, {{"x", x}, {"dy", dy}});
  visit_float("gelu_bwd", dx.t, [&]<class T>() {
    using A = acc_t<T>;
    const T *in = x.as<T>(), *grad = dy.as<T>();
    map<T>(n, dx, [=](int64_t i) {
      const A v = load(in, i), s = A(1) / (A(1) + gelu_exp(v));
      const A twice_du = mul_add(v * v, A(6 * kScale * kCubic), A(2 * kScale));
      return load(grad, i) * mul_add(v * twice_du, s * (A(1) - s), s);
    });
  });
}

}  // namespace gradus::cpu
