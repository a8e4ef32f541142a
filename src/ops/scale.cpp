// scale: y = factor x.   dx = factor dy.   saves nothing.
#include "src/ops/ops.h"

namespace gradus {

Tensor scale(const Tensor& x, double factor) {
  const ProfileRange range("scale");
  const Tensor y = applied("scale", &Backend::scale, cost::scale, x, float(factor));
  return record("scale", {x}, {}, y, [factor](const Node&, const Tensor& dy, Grads& dx) {
    run(&Backend::scale, cost::scale, dy, dy.in(), dx.out(0), float(factor));
  });
}

}  // namespace gradus
