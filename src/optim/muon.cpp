#include "src/optim/muon.h"

#include <cmath>

#include "src/ops/run.h"
#include "src/tensor/context.h"

namespace gradus {

bool Muon::is_for(const Parameter& p) { return p.value.shape().rank() == 2 && p.name.starts_with("h."); }

Muon::Muon(Parameters& parameters, MuonArgs args, const ParameterGroup& group)
    : Optimizer(
          parameters,
          [](const Parameter& p) {
            check_whole("muon", p);
            return is_for(p) ? States{like(p, "momentum")} : adamw_states(p);
          },
          group),
      args_(args) {}

void Muon::update(const std::vector<size_t>& of, ParamList list) {
  std::vector<ParamUpdate> others;
  for (int64_t i = 0; i < list.count; ++i)
    if (const Parameter& p = *states[of[size_t(i)]].parameter; is_for(p))
      update_matrix(p, list.items[i]);
    else
      others.push_back(list.items[i]);
  if (!others.empty()) adamw({int64_t(others.size()), others.data()}, args_.others);
}

// The gradients in the direction are clipped; the orthogonal matrix is not, so clips = false.
void Muon::update_matrix(const Parameter& p, ParamUpdate u) {
  const Tensor& w = p.value;
  Tensor direction(w.device(), w.shape(), args_.products, Kind::Temporary, p.name + ".direction");
  kernels().muon_direction(ctx(cost::muon_direction(u.n, u.grad.t, u.m.t, args_.products)), u.n, u.grad, u.m,
                           direction.set(), args_.momentum);
  const Tensor orthogonal = newton_schulz(std::move(direction), args_.iterations);
  Tensor step = empty(w, w.shape(), statistics_dtype(w.dtype()), "muon.step");
  cast(orthogonal, step.set());
  u.grad = step.in();
  u.m = {};
  const float scale = 0.2f * std::sqrt(float(std::max(w.shape()[0], w.shape()[1])));
  kernels().sgd(ctx(cost::sgd({1, &u})), {1, &u},
                {.weight_decay = args_.weight_decay, .clips = false, .scale = scale});
}

// Returns alpha x + beta l r, with the shape of x.
static Tensor plus_product(double alpha, const Tensor& x, double beta, MatmulShape s, const Tensor& l,
                           const Tensor& r) {
  check(l.numel() == s.M * s.K && r.numel() == s.K * s.N, "plus_product: ", l.shape(), " times ", r.shape(),
        " is not a product (", s.M, ", ", s.K, ") times (", s.K, ", ", s.N, "); are they in this order?");
  Tensor y = empty_like(x, "newton_schulz");
  run(&Backend::scale, cost::scale, x, x.in(), y.set(), float(alpha));
  s.alpha = float(beta);
  be(x).matmul(ctx(x, cost::matmul(s, x.dtype())), s, l.in(), r.in(), y.add());
  return y;
}

Tensor newton_schulz(Tensor x, int iterations) {
  constexpr double a = 3.4445, b = -4.775, c = 2.0315;
  const int64_t R = x.shape()[0], C = x.shape()[1], n = std::min(R, C);
  const bool wide = R <= C;  // else X^T X, multiplied from the right: the smaller of the two products
  const MatmulShape square{.M = n, .N = n, .K = n, .lda = n, .ldb = n, .ldc = n},
      gram{.M = n,
           .N = n,
           .K = std::max(R, C),
           .ta = wide ? Trans::No : Trans::Yes,
           .tb = wide ? Trans::Yes : Trans::No,
           .lda = C,
           .ldb = C,
           .ldc = n},
      outer{.M = R, .N = C, .K = n, .lda = wide ? n : C, .ldb = C, .ldc = C};
  for (int i = 0; i < iterations; ++i) {
    Tensor xx = empty(x, {n, n}, "newton_schulz");
    be(x).matmul(ctx(x, cost::matmul(gram, x.dtype())), gram, x.in(), x.in(), xx.set());
    // BEGIN SOLUTION 06.5
    const Tensor p = plus_product(b, xx, c, square, xx, xx);
    x = plus_product(a, x, 1, outer, wide ? p : x, wide ? x : p);
    // STUB: todo("06.5", "the next x from x and xx, by two calls of plus_product", plus_product, a, b, c, square, outer);
    // END SOLUTION 06.5
  }
  return x;
}

}  // namespace gradus
