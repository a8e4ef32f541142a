// The two forms of gelu and their slopes, in the accumulation type.
#pragma once
#include "kernels/cpu/vmath.h"

namespace gradus::cpu {

// gelu: y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).   dy/dx = 1/2 (1 + t) + x/2 (1 - t^2) u', t
// = tanh(u). With s = 1 / (1 + e^(-2u)): 1/2 (1 + t) = s and 1/2 (1 - t^2) = 2 s (1 - s), which takes one exp
// and one division.
constexpr double kScale = 0.7978845608028654, kCubic = 0.044715;  // sqrt(2/pi), and the paper's constant

// e^(-2u), so s = 1 / (1 + gelu_exp(x)).
template <class A>
A gelu_exp(A x) {
  return vexp(x * mul_add(x * x, A(-2 * kScale * kCubic), A(-2 * kScale)));
}

constexpr auto kGelu = []<class A>(A x) { return x / (A(1) + gelu_exp(x)); };
constexpr auto kGeluBwd = []<class A>(A x, A dy) {
  const A s = A(1) / (A(1) + gelu_exp(x));
  const A twice_du = mul_add(x * x, A(6 * kScale * kCubic), A(2 * kScale));
  return dy * mul_add(x * twice_du, s * (A(1) - s), s);
};

// gelu_erf: y = x Phi(x), Phi(x) = 1/2 (1 + erf(x/sqrt(2))).   dy/dx = Phi(x) + x e^(-x^2/2) / sqrt(2 pi).
constexpr double kSqrtHalf = 0.7071067811865476, kPerSqrt2Pi = 0.3989422804014327;

template <class A>
A normal_cdf(A x) {
  return mul_add(A(0.5), verf(x * A(kSqrtHalf)), A(0.5));
}

constexpr auto kGeluErf = []<class A>(A x) { return x * normal_cdf(x); };
constexpr auto kGeluErfBwd = []<class A>(A x, A dy) {
  return dy * mul_add(x, A(kPerSqrt2Pi) * vexp(A(-0.5) * x * x), normal_cdf(x));
};

}  // namespace gradus::cpu
