// layernorm, over the last dimension: y = xhat gamma + beta, xhat = (x - mean) rstd.
// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma;   dgamma = sum dy xhat,   dbeta = sum dy (over
// rows). saves: x, gamma and the statistics (mean and rstd of each row); nothing if only beta wants a
// gradient, which is that of a bias.
#include "src/ops/ops.h"

namespace gradus {

static void layernorm_op_bwd(const Node& n, const Tensor& dy, Grads& dx) {
  const Out to_x = dx.out(0), to_gamma = dx.out(1), to_beta = dx.out(2);
  if (dx.wanted(0) || dx.wanted(1))
    run(&Backend::layernorm_bwd, cost::layernorm_bwd, dy, n.saved[0].in(), n.saved[1].in(), n.saved[2].in(),
        dy.in(), to_x, to_gamma, to_beta);
  else
    run(&Backend::bias_bwd, cost::bias_bwd, dy, dy.in(), to_beta);
}

Tensor layernorm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const ProfileRange range("layernorm");
  const Shape expected{x.last()};
  check(gamma.shape() == expected && beta.shape() == expected, "layernorm: x is ", x.shape(), ", gamma is ",
        gamma.shape(), ", beta is ", beta.shape(), "; gamma and beta must be ", expected);
  Tensor y = empty_like(x, "layernorm");
  Tensor stats = empty(x, {x.rows().rows, 2}, statistics_dtype(x.dtype()), "layernorm.stats");
  run(&Backend::layernorm_fwd, cost::layernorm_fwd, x, x.in(), gamma.in(), beta.in(), y.set(), stats.set(),
      float(eps));
  return record("layernorm", {x, gamma, beta},
                {{x, needed_by(x, gamma)}, {gamma, needed_by(x, gamma)}, {stats, needed_by(x, gamma)}}, y,
                layernorm_op_bwd);
}

}  // namespace gradus
