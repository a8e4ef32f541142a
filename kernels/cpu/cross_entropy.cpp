#include "kernels/cpu/softmax.h"

namespace gradus::cpu {

// What the sum of the losses is divided by: `count`, or, if it is nullptr, the targets here that count.
// Checks all targets.
template <class A>
static A count_of(RowShape s, CBuf targets, CBuf count) {
  int64_t here = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    const int32_t target = targets.as<int32_t>()[r];
    check(target >= -1 && target < s.cols, "cross_entropy: target ", target, " of row ", r,
          " is not a class; there are ", s.cols, " classes, from 0; -1 stands for none");
    here += target >= 0;
  }
  return count.p ? count.as<A>()[0] : A(here);
}

void count_targets(const Ctx&, int64_t n, CBuf targets, Out count) {
  check_int32("count_targets", "targets", targets);
  visit_out("count_targets", count, [&]<class T, Write W>() {
    const int32_t* t = targets.as<int32_t>();
    store<W>(count.as<T>(), 0, acc_t<T>(std::count_if(t, t + n, [](int32_t target) { return target >= 0; })));
  });
}

void cross_entropy_fwd(const Ctx& ctx, RowShape s, CBuf logits, CBuf targets, CBuf count, Out loss, Out lse) {
  check_cross_entropy_fwd(logits, targets, count, loss, lse);
  visit_float("cross_entropy_fwd", logits.t, [&]<class T>() {
    using A = acc_t<T>;
    A* row_loss = static_cast<A*>(ctx.scratch);
    const A total_count = count_of<A>(s, targets, count);
    for_rows(s, [&](int64_t r) {
      const T* row = logits.as<T>() + r * s.cols;
      A exps[kExpChunk];
      const ExpSum<A> total = exp_sum(s.cols, row, exps);
      const A value = total.shift + std::log(total.sum);
      const int32_t target = targets.as<int32_t>()[r];
      row_loss[r] = target < 0 ? A(0) : value - load(row, target);
      if (lse.wanted()) visit_write(lse.w, [&]<Write W>() { store<W>(lse.as<A>(), r, value); });
    });
    if (!loss.wanted()) return;
    double sum = 0;  // in the order of the rows, and in fp64: there may be millions
    for (int64_t r = 0; r < s.rows; ++r) sum += double(row_loss[r]);
    visit_write(loss.w, [&]<Write W>() { store<W>(loss.as<A>(), 0, A(sum / double(total_count))); });
  });
}

template <class T>
[[gnu::flatten, gnu::noinline]] static void cross_entropy_bwd_row(acc_t<T> lse, acc_t<T> factor,
                                                                  int32_t target, int64_t cols, T* row) {
  using A = acc_t<T>;
  if (target < 0) return (void)std::fill_n(row, cols, T(A(0)));
  // Before the loop, which writes over the row.
  const A at_target = factor * (vexp(load(row, target) - lse) - A(1));
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) row[c] = T(factor * vexp(load(row, c) - lse));
  row[target] = T(at_target);
}

void cross_entropy_bwd_inplace(const Ctx&, RowShape s, CBuf targets, CBuf count, CBuf lse, CBuf dloss,
                               Out logits) {
  check_cross_entropy_bwd_inplace(targets, count, lse, dloss, logits);
  visit_float("cross_entropy_bwd_inplace", logits.t, [&]<class T>() {
    using A = acc_t<T>;
    const A factor = dloss.as<A>()[0] / count_of<A>(s, targets, count);
    for_rows(s, [&](int64_t r) {
      cross_entropy_bwd_row(lse.as<A>()[r], factor, targets.as<int32_t>()[r], s.cols,
                            logits.as<T>() + r * s.cols);
    });
  });
}

}  // namespace gradus::cpu
