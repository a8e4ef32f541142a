// first_token: y[b,:] = x[b,0,:].   dx[b,0,:] = dy[b,:], and 0 elsewhere.   saves nothing.
// One small copy for each sample: it happens once in a pass.
#include "src/ops/ops.h"

namespace gradus {

static void copy_row(const Tensor& from, int64_t row, Out to) {
  const int64_t C = from.last();
  be(from).cast(ctx(from, cost::cast(C, from.dtype(), to.t)), C, from.narrow(row, 1).in(), to);
}
static void first_token_bwd(const Node& n, const Tensor& dy, Grads& dx) {
  const Out out = dx.out(0);
  const Shape& x = n.inputs[0].shape;
  if (out.w == Write::Set) be(dy).fill(ctx(dy, cost::fill(x.numel(), out.t)), x.numel(), out, 0.0);
  for (int64_t b = 0; b < x[0]; ++b) copy_row(dy, b, out.from(b * x[1] * x[2]));
}

Tensor first_token(const Tensor& x) {
  const ProfileRange range("first_token");
  check(x.shape().rank() == 3 && x.shape()[1] > 0, "first_token: x is ", x.shape(),
        "; it must be (B,T,C) with at least one token");
  const int64_t B = x.shape()[0], T = x.shape()[1], C = x.last();
  Tensor y = empty(x, {B, C}, "first_token");
  for (int64_t b = 0; b < B; ++b) copy_row(x.detach().reshape({B * T, C}), b * T, y.set().from(b * C));
  return record("first_token", {x}, {}, y, first_token_bwd);
}

}  // namespace gradus
