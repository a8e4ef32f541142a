#include "kernels/cpu/softmax.h"

namespace gradus::cpu {

// Checks all targets; returns how many of them count in this call.
static int64_t targets_here(RowShape s, CBuf targets, bool may_be_elsewhere) {
  int64_t here = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    const int32_t target = targets.as<int32_t>()[r];
    check((target >= -1 && target < s.cols) || (target == kElsewhere && may_be_elsewhere),
          "cross_entropy: target ", target, " of row ", r, " is not a class; there are ", s.cols,
          " classes, from 0; -1 stands for none");
    here += target >= 0;
  }
  return here;
}
// The divisor of the sum of losses: `count`, or, if that is nullptr, the targets that count in this call.
template <class A>
static A count_of(RowShape s, CBuf targets, CBuf count) {
  const int64_t here = targets_here(s, targets, count.p != nullptr);
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
      row_loss[r] = target == -1 ? A(0) : target == kElsewhere ? value : value - load(row, target);
      if (lse.wanted()) visit_write(lse.w, [&]<Write W>() { store<W>(lse.as<A>(), r, value); });
    });
    if (!loss.wanted()) return;
    double sum = 0;  // in the order of the rows, and in fp64: there may be millions of rows
    for (int64_t r = 0; r < s.rows; ++r) sum += double(row_loss[r]);
    visit_write(loss.w, [&]<Write W>() { store<W>(loss.as<A>(), 0, A(sum / double(total_count))); });
  });
}

template <class T>
[[gnu::flatten, gnu::noinline]] static void cross_entropy_bwd_row(acc_t<T> lse, acc_t<T> factor,
                                                                  int32_t target, int64_t cols, T* row) {
  using A = acc_t<T>;
  if (target == -1) return (void)std::fill_n(row, cols, T(A(0)));
  // Computed before the loop, which overwrites the row.
  const A at_target = target < 0 ? A(0) : factor * (vexp(load(row, target) - lse) - A(1));
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) row[c] = T(factor * vexp(load(row, c) - lse));
  if (target >= 0) row[target] = T(at_target);
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

void cross_entropy_sums(const Ctx&, RowShape s, CBuf logits, CBuf targets, CBuf part_lse, CBuf max,
                        Out sums) {
  check_cross_entropy_sums(logits, targets, part_lse, max, sums);
  targets_here(s, targets, true);
  if (!sums.wanted()) return;
  visit_float("cross_entropy_sums", logits.t, [&]<class T>() {
    using A = acc_t<T>;
    visit_write(sums.w, [&]<Write W>() {
      parallel_for(s.rows, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int32_t target = targets.as<int32_t>()[r];
          // A part without columns, or of -infinity only, adds nothing.
          const A lse = part_lse.as<A>()[r], e = lse == -INFINITY ? A(0) : std::exp(lse - max.as<A>()[r]);
          store<W>(sums.as<A>(), r, e);
          store<W>(sums.as<A>(), s.rows + r, target < 0 ? A(0) : load(logits.as<T>(), r * s.cols + target));
        }
      });
    });
  });
}

void cross_entropy_of_sums(const Ctx&, int64_t rows, CBuf targets, CBuf count, CBuf max, CBuf sums, Out loss,
                           Out lse) {
  check_cross_entropy_of_sums(targets, count, max, sums, loss, lse);
  visit_float("cross_entropy_of_sums", max.t, [&]<class T>() {
    using A = acc_t<T>;
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const A value = max.as<A>()[r] + std::log(sums.as<A>()[r]);
      if (targets.as<int32_t>()[r] >= 0) sum += double(value - sums.as<A>()[rows + r]);
      if (lse.wanted()) visit_write(lse.w, [&]<Write W>() { store<W>(lse.as<A>(), r, value); });
    }
    if (!loss.wanted()) return;
    visit_write(loss.w, [&]<Write W>() { store<W>(loss.as<A>(), 0, A(sum / double(count.as<A>()[0]))); });
  });
}

void local_ids(const Ctx&, int64_t n, int64_t all, int64_t first, int64_t count, CBuf ids, Out y) {
  check_local_ids(ids, y);
  if (!y.p) return;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t id = ids.as<int32_t>()[i];
    check(id >= -1 && id < all, "local_ids: id ", id, " at ", i, " is not one of ", all);
    y.as<int32_t>()[i] = id == -1 ? -1 : id >= first && id < first + count ? int32_t(id - first) : kElsewhere;
  }
}

}  // namespace gradus::cpu
