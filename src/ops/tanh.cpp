// tanh: y = tanh(x).   dx from y and dy: exercise 02.2.   saves: y.
#include "src/ops/ops.h"

namespace gradus {

Tensor tanh(const Tensor& x) {
  const ProfileRange range("tanh");
  Tensor y = empty_like(x, "tanh");
  be(x).tanh_fwd(ctx(x, cost::tanh_fwd(x.numel(), x.dtype())), x.numel(), x.in(), y.set());
  return record("tanh", {x}, {{y, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    be(dy).tanh_bwd(ctx(dy, cost::tanh_bwd(dy.numel(), dy.dtype())), dy.numel(), n.saved[0].in(), dy.in(),
                    dx.out(0));
  });
}

}  // namespace gradus
