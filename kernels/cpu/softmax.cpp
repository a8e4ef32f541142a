#include "kernels/cpu/softmax.h"

namespace gradus::cpu {

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void softmax_row(int64_t cols, const T* x, T* y) {
  using A = acc_t<T>;
  A exps[kExpChunk];
  const ExpSum<A> row = exp_sum(cols, x, exps);
  const A factor = A(1) / row.sum;
  if (cols <= kExpChunk) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) store<W>(y, c, exps[c] * factor);
  } else {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) store<W>(y, c, vexp(load(x, c) - row.shift) * factor);
  }
}

void softmax_fwd(const Ctx&, RowShape s, CBuf x, Out y) {
  check_dtype("softmax_fwd", x.t, {{"y", y}});
  visit_out("softmax_fwd", y, [&]<class T, Write W>() {
    for_rows(s, [&](int64_t r) { softmax_row<W>(s.cols, x.as<T>() + r * s.cols, y.as<T>() + r * s.cols); });
  });
}

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void softmax_bwd_row(int64_t cols, const T* y, const T* dy, T* dx) {
  // BEGIN SOLUTION 03.4
  acc_t<T> dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t c = 0; c < cols; ++c) dot += load(y, c) * load(dy, c);
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) store<W>(dx, c, load(y, c) * (load(dy, c) - dot));
  // STUB: todo("03.4", "dx of one row; read with load(y, c), write with store<W>(dx, c, value)", cols, y, dy, dx);
  // END SOLUTION 03.4
}

void softmax_bwd(const Ctx&, RowShape s, CBuf y, CBuf dy, Out dx) {
  check_dtype("softmax_bwd", dx.t, {{"y", y}, {"dy", dy}});
  visit_out("softmax_bwd", dx, [&]<class T, Write W>() {
    for_rows(s, [&](int64_t r) {
      const int64_t at = r * s.cols;
      softmax_bwd_row<W>(s.cols, y.as<T>() + at, dy.as<T>() + at, dx.as<T>() + at);
    });
  });
}

}  // namespace gradus::cpu
