// gelu_erf: y = x Phi(x), Phi(x) = 1/2 (1 + erf(x/sqrt(2))).
// dx = dy (Phi(x) + x e^(-x^2/2) / sqrt(2 pi)).   saves: x.
#include "src/ops/ops.h"

namespace gradus {

Tensor gelu_erf(const Tensor& x) {
  const ProfileRange range("gelu_erf");
  const Tensor y = applied("gelu_erf", &Backend::gelu_erf_fwd, cost::gelu_erf_fwd, x);
  return record("gelu_erf", {x}, {{x, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    run(&Backend::gelu_erf_bwd, cost::gelu_erf_bwd, dy, n.saved[0].in(), dy.in(), dx.out(0));
  });
}

}  // namespace gradus
