#include "kernels/cpu/experts.h"

namespace gradus::cpu {

// Writes f (B, E) to scratch.
template <class A>
static A* shares_of_choices(const Ctx& ctx, const ExpertShape& s, CBuf experts) {
  A* const shares = static_cast<A*>(ctx.scratch);
  const int64_t choices = s.T * s.chosen;
  for_rows({s.B, choices}, [&](int64_t b) {
    A* const of_sequence = shares + b * s.E;
    std::fill_n(of_sequence, s.E, A(0));
    for (int64_t i = b * choices; i < (b + 1) * choices; ++i) of_sequence[experts.as<int32_t>()[i]] += 1;
    for (int64_t e = 0; e < s.E; ++e) of_sequence[e] /= A(choices);
  });
  return shares;
}

// Softmax of a token's logits is p[e] = e^(x[e] - shift) per_sum.
template <class A>
struct Balance {
  A shift, per_sum, share;  // share: sum of f[e] p[e]
};
template <class T>
[[gnu::flatten, gnu::noinline]] static Balance<acc_t<T>> balance_of(int64_t E, const T* x,
                                                                    const acc_t<T>* shares) {
  using A = acc_t<T>;
  A max = -INFINITY;
#pragma omp simd reduction(max : max)
  for (int64_t e = 0; e < E; ++e) max = load(x, e) > max ? load(x, e) : max;
  const A shift = max == -INFINITY ? A(0) : max;  // -inf - -inf would be NaN
  // BEGIN SOLUTION 21.3
  A sum = 0, share = 0;
#pragma omp simd reduction(+ : sum, share)
  for (int64_t e = 0; e < E; ++e) {
    const A exp = vexp(load(x, e) - shift);
    sum += exp, share += shares[e] * exp;
  }
  return {shift, 1 / sum, share / sum};
  // STUB: todo("21.3", "1 / the sum of the exponentials and the sum of f[e] p[e]", E, x, shares, shift); return {};
  // END SOLUTION 21.3
}

void balance_loss_fwd(const Ctx& ctx, const ExpertShape& s, CBuf logits, CBuf experts, CBuf count, Out loss,
                      float alpha) {
  check_balance_loss_fwd(s, logits, experts, count, loss);
  check_chosen("balance_loss_fwd", s, experts);
  if (!loss.wanted()) return;
  visit_float("balance_loss_fwd", logits.t, [&]<class T>() {
    using A = acc_t<T>;
    const A* const shares = shares_of_choices<A>(ctx, s, experts);
    A* const of_token = static_cast<A*>(ctx.scratch) + s.B * s.E;
    for_rows({s.tokens(), s.E}, [&](int64_t t) {
      of_token[t] = balance_of(s.E, logits.as<T>() + t * s.E, shares + t / s.T * s.E).share;
    });
    double sum = 0;  // in the order of the tokens, and in fp64, as for cross_entropy
    for (int64_t t = 0; t < s.tokens(); ++t) sum += double(of_token[t]);
    const double by = count.p ? double(count.as<A>()[0]) : double(s.tokens());
    const A value = s.tokens() == 0 ? A(0) : A(double(alpha) * double(s.E) / by * sum);
    visit_write(loss.w, [&]<Write W>() { store<W>(loss.as<A>(), 0, value); });
  });
}

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void balance_bwd_row(int64_t E, Balance<acc_t<T>> of_row,
                                                            acc_t<T> factor, const T* x,
                                                            const acc_t<T>* shares, T* dx) {
#pragma omp simd
  for (int64_t e = 0; e < E; ++e) {
    const acc_t<T> p = vexp(load(x, e) - of_row.shift) * of_row.per_sum;
    store<W>(dx, e, factor * p * (shares[e] - of_row.share));
  }
}

void balance_loss_bwd(const Ctx& ctx, const ExpertShape& s, CBuf logits, CBuf experts, CBuf count, CBuf dloss,
                      Out dlogits, float alpha) {
  check_balance_loss_bwd(s, logits, experts, count, dloss, dlogits);
  check_chosen("balance_loss_bwd", s, experts);
  visit_out("balance_loss_bwd", dlogits, [&]<class T, Write W>() {
    using A = acc_t<T>;
    const A* const shares = shares_of_choices<A>(ctx, s, experts);
    const A by = count.p ? count.as<A>()[0] : A(s.tokens());
    const A factor = dloss.as<A>()[0] * A(alpha) * A(s.E) / by;
    for_rows({s.tokens(), s.E}, [&](int64_t t) {
      const T* const row = logits.as<T>() + t * s.E;
      const A* const of_sequence = shares + t / s.T * s.E;
      balance_bwd_row<W>(s.E, balance_of(s.E, row, of_sequence), factor, row, of_sequence,
                         dlogits.as<T>() + t * s.E);
    });
  });
}

}  // namespace gradus::cpu
