// softmax, over the last dimension: y = exp(x - max) / sum.   dx from y and dy: exercise 03.6.   saves: y.
#include "src/ops/ops.h"

namespace gradus {

Tensor softmax(const Tensor& x) {
  const ProfileRange range("softmax");
  Tensor y = empty_like(x, "softmax");
  be(x).softmax_fwd(ctx(x, cost::softmax_fwd(x.rows(), x.dtype())), x.rows(), x.in(), y.set());
  return record("softmax", {x}, {{y, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    const RowShape rows = n.saved[0].tensor.rows();
    be(dy).softmax_bwd(ctx(dy, cost::softmax_bwd(rows, dy.dtype())), rows, n.saved[0].in(), dy.in(),
                       dx.out(0));
  });
}

}  // namespace gradus
