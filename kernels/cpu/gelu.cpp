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
  map("gelu_fwd", n, y, {{"x", x}}, []<class A>(A x) { return x / (A(1) + gelu_exp(x)); });
}

void gelu_bwd(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx) {
  const auto slope = []<class A>(A x, A dy) {
    const A s = A(1) / (A(1) + gelu_exp(x));
    const A twice_du = mul_add(x * x, A(6 * kScale * kCubic), A(2 * kScale));
    return dy * mul_add(x * twice_du, s * (A(1) - s), s);
  };
  map("gelu_bwd", n, dx, {{"x", x}, {"dy", dy}}, slope);
}

}  // namespace gradus::cpu
