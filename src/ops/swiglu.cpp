// swiglu: y = silu(gate) value, silu(g) = g s, s = 1 / (1 + e^-g); a row of x is the gate, then the value.
// dvalue = dy silu(gate),   dgate = dy value (s + silu(gate) (1 - s)).   saves: x.
#include "src/ops/ops.h"

namespace gradus {

Tensor swiglu(const Tensor& x) {
  const ProfileRange range("swiglu");
  check(x.shape().rank() > 0 && x.last() % 2 == 0, "swiglu: x is ", x.shape(),
        "; its last dimension is a gate and a value of the same size, so it must be even");
  Tensor y = empty(x, x.shape().with_last(x.last() / 2), "swiglu");
  run(&Backend::swiglu_fwd, cost::swiglu_fwd, y, x.in(), y.set());
  return record("swiglu", {x}, {{x, needed_by(x)}}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    const Out to_x = dx.out(0);
    run(&Backend::swiglu_bwd, cost::swiglu_bwd, dy, n.saved[0].in(), dy.in(), to_x);
  });
}

}  // namespace gradus
