// The layernorm of a row.
#pragma once
#include "kernels/cpu/io.h"

namespace gradus::cpu {

template <class A>
struct RowStatistics {
  A mean, rstd;
};

// Mean and 1/sqrt(var + eps) of a row, in two passes while it is in cache. The second sums the differences
// from a first mean, so that a large mean does not cancel the variance, and corrects the first mean by the
// mean of these (Chan, Golub & LeVeque 1983, "Algorithms for computing the sample variance", eq. 1.7).
template <class T>
[[gnu::flatten, gnu::noinline]] inline RowStatistics<acc_t<T>> row_statistics(int64_t cols, const T* x,
                                                                              acc_t<T> eps) {
  using A = acc_t<T>;
  A sum = 0, rest = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < cols; ++c) sum += load(x, c);
  const A first = sum / A(cols);
#pragma omp simd reduction(+ : rest, squares)
  for (int64_t c = 0; c < cols; ++c) {
    const A d = load(x, c) - first;
    rest += d;
    squares += d * d;
  }
  const A correction = rest / A(cols), var = squares / A(cols) - correction * correction;
  return {first + correction, A(1) / std::sqrt(std::max(var, A(0)) + eps)};
}

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] inline void layernorm_row(RowStatistics<acc_t<T>> s, int64_t cols, const T* x,
                                                          const T* gamma, const T* beta, T* y) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c)
    store<W>(y, c, (load(x, c) - s.mean) * s.rstd * load(gamma, c) + load(beta, c));
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma; plus dsum, if it is given.
template <Write W, class T>
[[gnu::flatten, gnu::noinline]] inline void layernorm_bwd_row(RowStatistics<acc_t<T>> s, int64_t cols,
                                                              const T* x, const T* gamma, const T* dy,
                                                              const T* dsum, T* dx) {
  using A = acc_t<T>;
  A sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
  for (int64_t c = 0; c < cols; ++c) {
    const A g = load(dy, c) * load(gamma, c);
    sum += g;
    dot += g * ((load(x, c) - s.mean) * s.rstd);
  }
  const A mean_g = sum / A(cols), mean_dot = dot / A(cols);
  const auto slope = [&](int64_t c) {
    const A g = load(dy, c) * load(gamma, c), xhat = (load(x, c) - s.mean) * s.rstd;
    return s.rstd * (g - mean_g - xhat * mean_dot);
  };
  if (dsum) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) store<W>(dx, c, slope(c) + load(dsum, c));
  } else {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) store<W>(dx, c, slope(c));
  }
}

// A row's part of dgamma = sum dy xhat and dbeta = sum dy.
template <class T>
[[gnu::flatten, gnu::noinline]] inline void add_parameter_sums(RowStatistics<acc_t<T>> s, int64_t cols,
                                                               const T* x, const T* dy, acc_t<T>* dgamma,
                                                               acc_t<T>* dbeta) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    dgamma[c] += load(dy, c) * ((load(x, c) - s.mean) * s.rstd);
    dbeta[c] += load(dy, c);
  }
}

}  // namespace gradus::cpu
