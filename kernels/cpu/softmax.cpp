#include "kernels/cpu/io.h"

namespace gradus::cpu {

// A row is read three times, but from cache after the first.
template <class T, Write W>
static void softmax_row(const T* x, T* y, int64_t cols) {
  using A = acc_t<T>;
  A max = -INFINITY, sum = 0;
#pragma omp simd reduction(max : max)
  for (int64_t c = 0; c < cols; ++c) max = std::max(max, load(x, c));
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < cols; ++c) sum += vexp(load(x, c) - max);
  const A factor = A(1) / sum;
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) store<W>(y, c, vexp(load(x, c) - max) * factor);
}

void softmax_fwd(const Ctx&, RowShape s, CBuf x, Out y) {
  check_dtype("softmax_fwd", y.t, x.t, x.p, "x");
  visit_float("softmax_fwd", y.t, [&]<class T>() {
    visit_write(y.w, [&]<Write W>() {
      parallel_for(s.rows, kGrain / std::max<int64_t>(s.cols, 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          softmax_row<T, W>(x.as<T>() + r * s.cols, y.as<T>() + r * s.cols, s.cols);
      });
    });
  });
}

void softmax_bwd(const Ctx&, RowShape s, CBuf y, CBuf dy, Out dx) {
  check_dtype("softmax_bwd", dx.t, y.t, y.p, "y");
  check_dtype("softmax_bwd", dx.t, dy.t, dy.p, "dy");
  if (!dx.wanted()) return;
  visit_float("softmax_bwd", dx.t, [&]<class T>() {
    using A = acc_t<T>;
    visit_write(dx.w, [&]<Write W>() {
      parallel_for(s.rows, kGrain / std::max<int64_t>(s.cols, 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T *out = y.as<T>() + r * s.cols, *grad = dy.as<T>() + r * s.cols;
          T* to = dx.as<T>() + r * s.cols;
          A dot = 0;
#pragma omp simd reduction(+ : dot)
          for (int64_t c = 0; c < s.cols; ++c) dot += load(out, c) * load(grad, c);
#pragma omp simd
          for (int64_t c = 0; c < s.cols; ++c) store<W>(to, c, load(out, c) * (load(grad, c) - dot));
        }
      });
    });
  });
}

}  // namespace gradus::cpu
