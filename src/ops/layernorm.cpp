// layernorm, over the last dimension: y = xhat gamma + beta, xhat = (x - mean) rstd.
// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma;   dgamma = sum dy xhat,   dbeta = sum dy (over
// rows). saves: x, gamma and the statistics (mean and rstd of each row).
#include "src/ops/ops.h"

namespace gradus {

static void layernorm_op_bwd(const Node& n, const Tensor& dy, Grads& dx) {
  const RowShape rows = dy.rows();
  be(dy).layernorm_bwd(ctx(dy, cost::layernorm_bwd(rows, dy.dtype())), rows, n.saved[0].in(), n.saved[1].in(),
                       n.saved[2].in(), dy.in(), dx.out(0), dx.out(1), dx.out(2));
}

Tensor layernorm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const ProfileRange range("layernorm");
  const Shape expected{x.last()};
  check(gamma.shape() == expected && beta.shape() == expected, "layernorm: x is ", x.shape(), ", gamma is ",
        gamma.shape(), ", beta is ", beta.shape(), "; gamma and beta must be ", expected);
  Tensor y = empty_like(x, "layernorm");
  Tensor stats = empty(x, {x.rows().rows, 2}, statistics_dtype(x.dtype()), "layernorm.stats");
  be(x).layernorm_fwd(ctx(x, cost::layernorm_fwd(x.rows(), x.dtype())), x.rows(), x.in(), gamma.in(),
                      beta.in(), y.set(), stats.set(), float(eps));
  return record(
      "layernorm", {x, gamma, beta},
      {{x, needed_by(x, gamma)}, {gamma, needed_by(x, gamma, beta)}, {stats, needed_by(x, gamma, beta)}}, y,
      layernorm_op_bwd);
}

}  // namespace gradus
