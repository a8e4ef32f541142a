// gelu: y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
// dx = dy (1/2 (1 + t) + x/2 (1 - t^2) u'), t = tanh(u), u' = sqrt(2/pi) (1 + 3·0.044715 x^2).   saves: x.
#include "src/ops/ops.h"

namespace gradus {

Tensor gelu(const Tensor& x) {
  const ProfileRange range("gelu");
  const Tensor y = applied("gelu", &Backend::gelu_fwd, cost::gelu_fwd, x);
  return record("gelu", {x}, {{x, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    run(&Backend::gelu_bwd, cost::gelu_bwd, dy, n.saved[0].in(), dy.in(), dx.out(0));
  });
}

}  // namespace gradus
