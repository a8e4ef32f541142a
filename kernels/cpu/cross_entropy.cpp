#include "kernels/cpu/io.h"

namespace gradus::cpu {

static void check_targets(RowShape s, CBuf targets) {
  check(targets.t == DType::I32, "cross_entropy: targets are ", name_of(targets.t), "; they must be int32");
  for (int64_t r = 0; r < s.rows; ++r) {
    const int32_t target = targets.as<int32_t>()[r];
    check(target >= 0 && target < s.cols, "cross_entropy: target ", target, " of row ", r,
          " is not a class; there are ", s.cols, " classes, from 0");
  }
}

// log sum exp of a row. The maximum is taken out first, so nothing overflows.
template <class T>
static acc_t<T> log_sum_exp(const T* x, int64_t cols) {
  using A = acc_t<T>;
  A max = -INFINITY, sum = 0;
#pragma omp simd reduction(max : max)
  for (int64_t c = 0; c < cols; ++c) max = std::max(max, load(x, c));
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < cols; ++c) sum += vexp(load(x, c) - max);
  return max + std::log(sum);
}

void cross_entropy_fwd(const Ctx& ctx, RowShape s, CBuf logits, CBuf targets, Out loss, Out lse) {
  check_targets(s, targets);
  visit_float("cross_entropy_fwd", logits.t, [&]<class T>() {
    using A = acc_t<T>;
    check_stats<T>("cross_entropy_fwd", loss.t, loss.p);
    check_stats<T>("cross_entropy_fwd", lse.t, lse.p);
    A* row_loss = static_cast<A*>(ctx.scratch);
    parallel_for(s.rows, kGrain / std::max<int64_t>(s.cols, 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* row = logits.as<T>() + r * s.cols;
        const A value = log_sum_exp(row, s.cols);
        row_loss[r] = value - load(row, targets.as<int32_t>()[r]);
        if (lse.wanted()) visit_write(lse.w, [&]<Write W>() { store<W>(lse.as<A>(), r, value); });
      }
    });
    double sum = 0;  // in the order of the rows, and in fp64: there may be millions
    for (int64_t r = 0; r < s.rows; ++r) sum += double(row_loss[r]);
    if (loss.wanted())
      visit_write(loss.w, [&]<Write W>() { store<W>(loss.as<A>(), 0, A(sum / double(s.rows))); });
  });
}

void cross_entropy_bwd_inplace(const Ctx&, RowShape s, CBuf targets, CBuf lse, CBuf dloss, Out logits) {
  check_targets(s, targets);
  check(logits.w == Write::Set,
        "cross_entropy_bwd_inplace: the logits are replaced; Write::Add has no meaning here");
  visit_float("cross_entropy_bwd_inplace", logits.t, [&]<class T>() {
    using A = acc_t<T>;
    check_stats<T>("cross_entropy_bwd_inplace", dloss.t, dloss.p);
    check_stats<T>("cross_entropy_bwd_inplace", lse.t, lse.p);
    const A factor = dloss.as<A>()[0] / A(s.rows);
    parallel_for(s.rows, kGrain / std::max<int64_t>(s.cols, 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* row = logits.as<T>() + r * s.cols;
        const A l = lse.as<A>()[r];
        const int32_t target = targets.as<int32_t>()[r];
        const A at_target = factor * (vexp(load(row, target) - l) - A(1));
#pragma omp simd
        for (int64_t c = 0; c < s.cols; ++c) row[c] = T(factor * vexp(load(row, c) - l));
        row[target] = T(at_target);
      }
    });
  });
}

}  // namespace gradus::cpu
