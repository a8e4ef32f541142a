#include "kernels/cpu/io.h"

namespace gradus::cpu {

// 1/sqrt(mean(x^2) + eps) of a row.
template <class T>
[[gnu::flatten, gnu::noinline]] static acc_t<T> row_rstd(int64_t cols, const T* x, acc_t<T> eps) {
  using A = acc_t<T>;
  A squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < cols; ++c) squares += load(x, c) * load(x, c);
  return A(1) / std::sqrt(squares / A(cols) + eps);
}

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void rmsnorm_row(acc_t<T> rstd, int64_t cols, const T* x,
                                                        const T* gamma, T* y) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) store<W>(y, c, load(x, c) * rstd * load(gamma, c));
}

void rmsnorm_fwd(const Ctx&, RowShape s, CBuf x, CBuf gamma, Out y, Out stats, float eps) {
  check_rmsnorm_fwd(x, gamma, y, stats);
  visit_float("rmsnorm_fwd", x.t, [&]<class T>() {
    using A = acc_t<T>;
    for_rows(s, [&](int64_t r) {
      const T* in = x.as<T>() + r * s.cols;
      const A rstd = row_rstd(s.cols, in, A(eps));
      visit_write(y.w, [&]<Write W>() {
        if (y.wanted()) rmsnorm_row<W>(rstd, s.cols, in, gamma.as<T>(), y.as<T>() + r * s.cols);
      });
      visit_write(stats.w, [&]<Write W>() {
        if (stats.wanted()) store<W>(stats.as<A>(), r, rstd);
      });
    });
  });
}

// dx = rstd (g - xhat mean(g xhat)), g = dy gamma, xhat = x rstd.
template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void rmsnorm_bwd_row(acc_t<T> rstd, int64_t cols, const T* x,
                                                            const T* gamma, const T* dy, T* dx) {
  using A = acc_t<T>;
  A dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t c = 0; c < cols; ++c) dot += load(dy, c) * load(gamma, c) * (load(x, c) * rstd);
  const A mean_dot = dot / A(cols);
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c)
    store<W>(dx, c, rstd * (load(dy, c) * load(gamma, c) - load(x, c) * rstd * mean_dot));
}

// A row's part of dgamma = sum dy xhat.
template <class T>
[[gnu::flatten, gnu::noinline]] static void add_dgamma(acc_t<T> rstd, int64_t cols, const T* x, const T* dy,
                                                       acc_t<T>* dgamma) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) dgamma[c] += load(dy, c) * (load(x, c) * rstd);
}

void rmsnorm_bwd(const Ctx& ctx, RowShape s, CBuf x, CBuf gamma, CBuf stats, CBuf dy, Out dx, Out dgamma) {
  check_rmsnorm_bwd(x, gamma, stats, dy, dx, dgamma);
  visit_float("rmsnorm_bwd", x.t, [&]<class T>() {
    using A = acc_t<T>;
    const int64_t P = cost::partitions(s.rows);
    A *partial = static_cast<A*>(ctx.scratch), *sums = partial + P * s.cols;
    for_partitions(s, [&](int64_t p, int64_t begin, int64_t end) {
      A* sum = partial + p * s.cols;
      std::fill_n(sum, s.cols, A(0));
      for (int64_t r = begin; r < end; ++r) {
        const T *in = x.as<T>() + r * s.cols, *grad = dy.as<T>() + r * s.cols;
        const A rstd = stats.as<A>()[r];
        visit_write(dx.w, [&]<Write W>() {
          if (dx.wanted()) rmsnorm_bwd_row<W>(rstd, s.cols, in, gamma.as<T>(), grad, dx.as<T>() + r * s.cols);
        });
        if (dgamma.wanted()) add_dgamma(rstd, s.cols, in, grad, sum);
      }
    });
    if (!dgamma.wanted()) return;
    sum_partitions(P, s.cols, partial, sums);
    write("rmsnorm_bwd", s.cols, sums, dgamma, 0);
  });
}

}  // namespace gradus::cpu
