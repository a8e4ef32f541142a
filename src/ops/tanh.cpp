// tanh: y = tanh(x).   dx from y and dy: exercise 02.3.   saves: y.
#include "src/ops/ops.h"

namespace gradus {

Tensor tanh(const Tensor& x) {
  const ProfileRange range("tanh");
  const Tensor y = applied("tanh", &Backend::tanh_fwd, cost::tanh_fwd, x);
  return record("tanh", {x}, {{y, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    run(&Backend::tanh_bwd, cost::tanh_bwd, dy, n.saved[0].in(), dy.in(), dx.out(0));
  });
}

}  // namespace gradus
