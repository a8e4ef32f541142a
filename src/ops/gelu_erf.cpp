// gelu_erf: y = x Phi(x), Phi(x) = 1/2 (1 + erf(x/sqrt(2))).
// dx = dy (Phi(x) + x e^(-x^2/2) / sqrt(2 pi)).   saves: x.
#include "src/ops/ops.h"

namespace gradus {

Tensor gelu_erf(const Tensor& x) {
  const ProfileRange range("gelu_erf");
  Tensor y = empty_like(x, "gelu_erf");
  be(x).gelu_erf_fwd(ctx(x, cost::gelu_erf_fwd(x.numel(), x.dtype())), x.numel(), x.in(), y.set());
  return record("gelu_erf", {x}, {{x, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    be(dy).gelu_erf_bwd(ctx(dy, cost::gelu_erf_bwd(dy.numel(), dy.dtype())), dy.numel(), n.saved[0].in(),
                        dy.in(), dx.out(0));
  });
}

}  // namespace gradus
