// add_positions: y[b,t,:] = x[b,t,:] + table[t,:], for t < T <= Tmax.
// dx = dy,   dtable[t,:] = sum of dy[b,t,:] over b (rows from T on: 0).   saves nothing.
// With x as (B, T·C) this adds a bias to rows, so it uses the kernels of a bias.
#include "src/ops/ops.h"

namespace gradus {

static void add_positions_bwd(const Node& n, const Tensor& dy, Grads& dx) {
  dx.pass(0, dy);
  const Out dtable = dx.out(1);
  if (!dtable.wanted()) return;
  const int64_t B = dy.shape()[0], used = dy.numel() / B, unused = n.inputs[1].shape.numel() - used;
  be(dy).bias_bwd(ctx(dy, cost::bias_bwd({B, used}, dy.dtype())), {B, used}, dy.in(), dtable);
  if (dtable.w == Write::Set && unused > 0)
    be(dy).fill(ctx(dy, cost::fill(unused, dtable.t)), unused, dtable.from(used), 0.0);
}

Tensor add_positions(const Tensor& x, const Tensor& table) {
  const ProfileRange range("add_positions");
  check(x.shape().rank() == 3 && x.shape()[0] > 0 && table.shape().rank() == 2 && x.last() == table.last() &&
            x.shape()[1] <= table.shape()[0],
        "add_positions: x is ", x.shape(), ", table is ", table.shape(),
        "; x must be (B,T,C) with B > 0 and T at most the table's ", table.shape()[0],
        " positions of width C");
  const RowShape rows{x.shape()[0], x.shape()[1] * x.last()};
  Tensor y = empty_like(x, "add_positions");
  be(x).bias_fwd(ctx(x, cost::bias_fwd(rows, x.dtype())), rows, x.in(), table.in(), y.set());
  return record("add_positions", {x, table}, {}, y, add_positions_bwd);
}

}  // namespace gradus
