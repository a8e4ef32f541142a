// gelu: y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
// dx = dy (1/2 (1 + t) + x/2 (1 - t^2) u'), t = tanh(u), u' = sqrt(2/pi) (1 + 3·0.044715 x^2).   saves: x.
#include "src/ops/ops.h"

namespace gradus {

Tensor gelu(const Tensor& x) {
  const ProfileRange range("gelu");
  Tensor y = empty_like(x, "gelu");
  be(x).gelu_fwd(ctx(x, cost::gelu_fwd(x.numel(), x.dtype())), x.numel(), x.in(), y.set());
  return record("gelu", {x}, {{x, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    be(dy).gelu_bwd(ctx(dy, cost::gelu_bwd(dy.numel(), dy.dtype())), dy.numel(), n.saved[0].in(), dy.in(),
                    dx.out(0));
  });
}

}  // namespace gradus
