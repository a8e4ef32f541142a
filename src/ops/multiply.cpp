// multiply: y = a b, elementwise.   da = dy b, db = dy a.   saves: a and b, each for the other's gradient.
#include "src/ops/ops.h"

namespace gradus {

Tensor multiply(const Tensor& a, const Tensor& b) {
  const ProfileRange range("multiply");
  check(a.shape() == b.shape() && a.dtype() == b.dtype(), "multiply: a is ", a.shape(), " ",
        name_of(a.dtype()), ", b is ", b.shape(), " ", name_of(b.dtype()),
        "; shapes and dtypes must be equal");
  Tensor y = empty_like(a, "multiply");
  run(&Backend::multiply, cost::multiply, a, a.in(), b.in(), y.set());
  return record("multiply", {a, b}, {{a, needed_by(b)}, {b, needed_by(a)}}, y,
                [](const Node& n, const Tensor& dy, Grads& dx) {
                  for (int i = 0; i < 2; ++i) {
                    if (!dx.wanted(i)) continue;
                    const CBuf other = n.saved[size_t(1 - i)].in();
                    run(&Backend::multiply, cost::multiply, dy, dy.in(), other, dx.out(i));
                  }
                });
}

}  // namespace gradus
