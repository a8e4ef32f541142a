// rmsnorm, over the last dimension: y = xhat gamma, xhat = x rstd, rstd = 1/sqrt(mean(x^2) + eps).
// dx = rstd (g - xhat mean(g xhat)), g = dy gamma;   dgamma = sum dy xhat (over rows).   saves: x, gamma and
// rstd of each row.
#include "src/ops/ops.h"

namespace gradus {

Tensor rmsnorm(const Tensor& x, const Tensor& gamma, double eps) {
  const ProfileRange range("rmsnorm");
  const Shape expected{x.last()};
  check(gamma.shape() == expected, "rmsnorm: x is ", x.shape(), ", gamma is ", gamma.shape(),
        "; gamma must be ", expected);
  Tensor y = empty_like(x, "rmsnorm");
  Tensor stats = empty(x, {x.rows().rows}, statistics_dtype(x.dtype()), "rmsnorm.stats");
  run(&Backend::rmsnorm_fwd, cost::rmsnorm_fwd, x, x.in(), gamma.in(), y.set(), stats.set(), float(eps));
  const bool needed = needed_by(x, gamma);
  return record("rmsnorm", {x, gamma}, {{x, needed}, {gamma, needed}, {stats, needed}}, y,
                [](const Node& n, const Tensor& dy, Grads& dx) {
                  const Out to_x = dx.out(0), to_gamma = dx.out(1);
                  run(&Backend::rmsnorm_bwd, cost::rmsnorm_bwd, dy, n.saved[0].in(), n.saved[1].in(),
                      n.saved[2].in(), dy.in(), to_x, to_gamma);
                });
}

}  // namespace gradus
