// add: y = a + b.   da = db = dy.   saves nothing.
#include "src/ops/ops.h"

namespace gradus {

Tensor add(const Tensor& a, const Tensor& b) {
  const ProfileRange range("add");
  check(a.shape() == b.shape() && a.dtype() == b.dtype(), "add: a is ", a.shape(), " ", name_of(a.dtype()),
        ", b is ", b.shape(), " ", name_of(b.dtype()), "; shapes and dtypes must be equal");
  Tensor y = empty_like(a, "add");
  run(&Backend::add, cost::add, a, a.in(), b.in(), y.set());
  return record("add", {a, b}, {}, y, [](const Node&, const Tensor& dy, Grads& dx) {
    dx.pass(0, dy);
    dx.pass(1, dy);
  });
}

}  // namespace gradus
