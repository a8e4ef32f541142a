// y = x + b; without x, y = b. linear() begins with that, then adds its product (src/ops/linear.cpp).
#include "kernels/cpu/io.h"

namespace gradus::cpu {

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void bias_row(int64_t cols, const T* x, const T* b, T* y) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) store<W>(y, c, load(x, c) + load(b, c));
}

void bias_fwd(const Ctx&, RowShape s, CBuf x, CBuf b, Out y) {
  check_dtype("bias_fwd", b.t, {{"x", x}, {"y", y}});
  visit_out("bias_fwd", y, [&]<class T, Write W>() {
    for_rows(s, [&](int64_t r) {
      T* to = y.as<T>() + r * s.cols;
      if (x.p)
        bias_row<W>(s.cols, x.as<T>() + r * s.cols, b.as<T>(), to);
      else
        copy_row<W>(s.cols, b.as<T>(), to);
    });
  });
}

// partial[p][cols] (scratch) <- the sum over partition p of the rows; then the partitions are added in order.
void bias_bwd(const Ctx& ctx, RowShape s, CBuf dy, Out db) {
  if (!db.wanted()) return;
  check_t_or_fp32("bias_bwd", dy.t, {{"db", db}});
  visit_float("bias_bwd", dy.t, [&]<class T>() {
    using A = acc_t<T>;
    const int64_t P = cost::partitions(s.rows);
    A *partial = static_cast<A*>(ctx.scratch), *sums = partial + P * s.cols;
    for_partitions(s, [&](int64_t p, int64_t begin, int64_t end) {
      A* sum = partial + p * s.cols;
      for (int64_t c = 0; c < s.cols; ++c) sum[c] = 0;
      for (int64_t r = begin; r < end; ++r) add_row(s.cols, dy.as<T>() + r * s.cols, sum);
    });
    sum_partitions(P, s.cols, partial, sums);
    write("bias_bwd", s.cols, sums, db, 0);
  });
}

}  // namespace gradus::cpu
