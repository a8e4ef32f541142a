// y = x Phi(x), Phi(x) = 1/2 (1 + erf(x/sqrt(2))).   dy/dx = Phi(x) + x e^(-x^2/2) / sqrt(2 pi).
#include "kernels/cpu/io.h"

namespace gradus::cpu {

constexpr double kSqrtHalf = 0.7071067811865476, kPerSqrt2Pi = 0.3989422804014327;

template <class A>
A normal_cdf(A x) {
  return mul_add(A(0.5), verf(x * A(kSqrtHalf)), A(0.5));
}

void gelu_erf_fwd(const Ctx&, int64_t n, CBuf x, Out y) {
  map("gelu_erf_fwd", n, y, {{"x", x}}, [](auto x) { return x * normal_cdf(x); });
}

void gelu_erf_bwd(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx) {
  const auto slope = []<class A>(A x, A dy) {
    return dy * mul_add(x, A(kPerSqrt2Pi) * vexp(A(-0.5) * x * x), normal_cdf(x));
  };
  map("gelu_erf_bwd", n, dx, {{"x", x}, {"dy", dy}}, slope);
}

}  // namespace gradus::cpu
