// y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).   dy/dx = 1/2 (1 + t) + x/2 (1 - t^2) u', t =
// tanh(u). With s = 1 / (1 + e^(-2u)): 1/2 (1 + t) = s and 1/2 (1 - t^2) = 2 s (1 - s), which takes one exp
// and one division.
#include "kernels/cpu/io.h"

namespace gradus::cpu {

template <class A>
A gelu_s(A x) {
  const A u = A(0.7978845608028654) * (x + A(0.044715) * x * x * x);
  return A(1) / (A(1) + vexp(A(-2) * u));
}

void gelu_fwd(const Ctx&, int64_t n, CBuf x, Out y) {
  check_dtype("gelu_fwd", y.t, x.t, x.p, "x");
  visit_float("gelu_fwd", y.t, [&]<class T>() {
    const T* in = x.as<T>();
    map<T>(n, y, [=](int64_t i) {
      const acc_t<T> v = load(in, i);
      return v * gelu_s(v);
    });
  });
}

void gelu_bwd(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx) {
  check_dtype("gelu_bwd", dx.t, x.t, x.p, "x");
  check_dtype("gelu_bwd", dx.t, dy.t, dy.p, "dy");
  if (!dx.wanted()) return;
  visit_float("gelu_bwd", dx.t, [&]<class T>() {
    using A = acc_t<T>;
    const T *in = x.as<T>(), *grad = dy.as<T>();
    map<T>(n, dx, [=](int64_t i) {
      const A v = load(in, i), s = gelu_s(v);
      const A du = A(0.7978845608028654) * (A(1) + A(3 * 0.044715) * v * v);
      return load(grad, i) * (s + v * A(2) * s * (A(1) - s) * du);
    });
  });
}

}  // namespace gradus::cpu
