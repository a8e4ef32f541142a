// bias_gelu: y = gelu(x + b).   dx = gelu'(x + b) dy,   db = sum of dx over rows.   saves: x and b. The
// linear before it, without bias, writes x once; with a bias it would write the bias, then add the product,
// and gelu would read the sum.
#include "src/ops/ops.h"

namespace gradus {

Tensor bias_gelu(const Tensor& x, const Tensor& bias) {
  const ProfileRange range("bias_gelu");
  check(bias.shape() == Shape{x.last()} && bias.dtype() == x.dtype(), "bias_gelu: x is ", x.shape(), " ",
        name_of(x.dtype()), ", bias is ", bias.shape(), " ", name_of(bias.dtype()), "; bias must be ",
        Shape{x.last()}, " ", name_of(x.dtype()));
  Tensor y = empty_like(x, "gelu");
  const CBuf b = bias.in();  // may gather the layer
  run(&Backend::bias_gelu_fwd, cost::bias_gelu_fwd, x, x.in(), b, y.set());
  return record("bias_gelu", {x, bias}, {{x, needed_by(x, bias)}, {bias, needed_by(x, bias)}}, y,
                [](const Node& n, const Tensor& dy, Grads& dx) {
                  const Out to_x = dx.out(0), to_bias = dx.out(1);
                  const CBuf b = n.saved[1].in();
                  run(&Backend::bias_gelu_bwd, cost::bias_gelu_bwd, dy, n.saved[0].in(), b, dy.in(), to_x,
                      to_bias);
                });
}

}  // namespace gradus
