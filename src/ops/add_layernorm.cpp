// add_layernorm: s = a + b,  y = layernorm(s).   da = db = ds + (dx of layernorm's backward for dy).
// saves: s, gamma and the statistics. The sum is normalized while it is on chip. In backward the kernel that
// computes layernorm's gradient also adds ds, so no second kernel reads and writes that gradient.
#include "src/ops/ops.h"

namespace gradus {

static void add_layernorm_op_bwd(const Node& n, const std::vector<Tensor>& dy, Grads& dx) {
  const Tensor &dsum = dy[0], &dnorm = dy[1];
  if (!dnorm.defined()) return dx.pass(0, dsum), dx.pass(1, dsum);
  const bool to_terms = dx.wanted(0) || dx.wanted(1);
  Tensor dterm = to_terms ? empty_like(dnorm, "gradient") : Tensor();
  const Out dgamma = dx.out(2), dbeta = dx.out(3);
  if (!to_terms && !dx.wanted(2)) return run(&Backend::bias_bwd, cost::bias_bwd, dnorm, dnorm.in(), dbeta);
  const CBuf gamma = n.saved[1].in(), none{nullptr, dnorm.dtype()};  // may gather the layer
  run(&Backend::add_layernorm_bwd, cost::add_layernorm_bwd, dnorm, n.saved[0].in(), gamma, n.saved[2].in(),
      dnorm.in(), dsum.defined() ? dsum.in() : none,
      to_terms ? dterm.set() : Out{nullptr, dnorm.dtype(), Write::Set}, dgamma, dbeta);
  if (to_terms) dx.pass(0, dterm), dx.pass(1, dterm);
}

std::vector<Tensor> add_layernorm(const Tensor& a, const Tensor& b, const Tensor& gamma, const Tensor& beta,
                                  double eps) {
  const ProfileRange range("add_layernorm");
  check(a.shape() == b.shape() && a.dtype() == b.dtype(), "add_layernorm: a is ", a.shape(), " ",
        name_of(a.dtype()), ", b is ", b.shape(), " ", name_of(b.dtype()),
        "; shapes and dtypes must be equal");
  const Shape expected{a.last()};
  check(gamma.shape() == expected && beta.shape() == expected, "add_layernorm: a is ", a.shape(),
        ", gamma is ", gamma.shape(), ", beta is ", beta.shape(), "; gamma and beta must be ", expected);
  Tensor sum = empty_like(a, "add"), y = empty_like(a, "layernorm");
  Tensor stats = empty(a, {a.rows().rows, 2}, statistics_dtype(a.dtype()), "layernorm.stats");
  const CBuf g = gamma.in(), bias = beta.in();  // may gather the layer
  run(&Backend::add_layernorm_fwd, cost::add_layernorm_fwd, a, a.in(), b.in(), g, bias, sum.set(), y.set(),
      stats.set(), float(eps));
  const bool needed = needed_by(a, b, gamma);
  return record("add_layernorm", {a, b, gamma, beta}, {{sum, needed}, {gamma, needed}, {stats, needed}},
                {sum, y}, add_layernorm_op_bwd);
}

}  // namespace gradus
