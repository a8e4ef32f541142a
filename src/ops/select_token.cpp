// select_token: y[b,:] = x[b,t,:].   dx[b,t,:] = dy[b,:], and 0 elsewhere.   saves nothing.
// One small copy for each sample: once in a pass, or once for each token that is generated.
#include "src/ops/ops.h"

namespace gradus {

static void copy_row(const Tensor& from, int64_t row, Out to) { cast(from.narrow(row, 1), to); }

Tensor select_token(const Tensor& x, int64_t t) {
  const ProfileRange range("select_token");
  check(x.shape().rank() == 3 && t >= 0 && t < x.shape()[1], "select_token: x is ", x.shape(), ", t is ", t,
        "; x must be (B,T,C) with t from 0 to T - 1");
  const int64_t B = x.shape()[0], T = x.shape()[1], C = x.last();
  const Tensor rows = x.detach().reshape({B * T, C});
  Tensor y = empty(x, {B, C}, "select_token");
  const Out out = y.set();
  for (int64_t b = 0; b < B; ++b) copy_row(rows, b * T + t, out.from(b * C));
  return record("select_token", {x}, {}, y, [=](const Node&, const Tensor& dy, Grads& dx) {
    const Out out = dx.out(0);
    if (out.w == Write::Set) be(dy).fill(ctx(dy, cost::fill(B * T * C, out.t)), B * T * C, out, 0.0);
    for (int64_t b = 0; b < B; ++b) copy_row(dy, b, out.from((b * T + t) * C));
  });
}

}  // namespace gradus
