#include "kernels/cpu/io.h"

namespace gradus::cpu {

void bias_fwd(const Ctx&, RowShape s, CBuf x, CBuf b, Out y) {
  check_dtype("bias_fwd", y.t, x.t, x.p, "x");
  check_dtype("bias_fwd", y.t, b.t, b.p, "b");
  visit_float("bias_fwd", y.t, [&]<class T>() {
    visit_write(y.w, [&]<Write W>() {
      parallel_for(s.rows, kGrain / std::max<int64_t>(s.cols, 1) + 1, [&](int64_t begin, int64_t end) {
        const T* bias = b.as<T>();
        for (int64_t r = begin; r < end; ++r) {
          const T* in = x.p ? x.as<T>() + r * s.cols : nullptr;
          T* out = y.as<T>() + r * s.cols;
          if (in)
            for (int64_t c = 0; c < s.cols; ++c) store<W>(out, c, load(in, c) + load(bias, c));
          else
            for (int64_t c = 0; c < s.cols; ++c) store<W>(out, c, load(bias, c));
        }
      });
    });
  });
}

// Partition p of the rows sums into partial[p][cols] (scratch), then the partitions are summed in order.
void bias_bwd(const Ctx& ctx, RowShape s, CBuf dy, Out db) {
  if (!db.wanted()) return;
  visit_float("bias_bwd", dy.t, [&]<class T>() {
    using A = acc_t<T>;
    A* partial = static_cast<A*>(ctx.scratch);
    const int64_t P = cost::partitions(s.rows);
    parallel_for(P, kGrain * P / std::max<int64_t>(s.rows * s.cols, 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        A* sum = partial + p * s.cols;
        for (int64_t c = 0; c < s.cols; ++c) sum[c] = 0;
        for (int64_t r = s.rows * p / P; r < s.rows * (p + 1) / P; ++r) {
          const T* row = dy.as<T>() + r * s.cols;
          for (int64_t c = 0; c < s.cols; ++c) sum[c] += load(row, c);
        }
      }
    });
    A* sums = partial + P * s.cols;
    sum_partitions(P, s.cols, partial, sums);
    store_sums("bias_bwd", s.cols, sums, db);
  });
}

}  // namespace gradus::cpu
