// scale: y = factor x.   dx = factor dy.   saves nothing.
#include "src/ops/ops.h"

namespace gradus {

Tensor scale(const Tensor& x, double factor) {
  const ProfileRange range("scale");
  Tensor y = empty_like(x, "scale");
  be(x).scale(ctx(x, cost::scale(x.numel(), x.dtype())), x.numel(), x.in(), y.set(), float(factor));
  return record("scale", {x}, {}, y, [factor](const Node&, const Tensor& dy, Grads& dx) {
    be(dy).scale(ctx(dy, cost::scale(dy.numel(), dy.dtype())), dy.numel(), dy.in(), dx.out(0), float(factor));
  });
}

}  // namespace gradus
