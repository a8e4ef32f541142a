// softmax, over the last dimension: y = exp(x - max) / sum.   dx from y and dy: exercise 03.4.   saves: y.
#include "src/ops/ops.h"

namespace gradus {

Tensor softmax(const Tensor& x) {
  const ProfileRange range("softmax");
  const Tensor y = applied("softmax", &Backend::softmax_fwd, cost::softmax_fwd, x);
  return record("softmax", {x}, {{y, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    run(&Backend::softmax_bwd, cost::softmax_bwd, dy, n.saved[0].in(), dy.in(), dx.out(0));
  });
}

}  // namespace gradus
