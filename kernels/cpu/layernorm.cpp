#include "kernels/cpu/io.h"

namespace gradus::cpu {

// Mean and 1/sqrt(var + eps) of a row. The variance is summed from differences to the mean (two passes over a
// row in cache), so that a large mean does not cancel it away.
template <class T>
static void row_statistics(const T* x, int64_t cols, acc_t<T> eps, acc_t<T>& mean, acc_t<T>& rstd) {
  using A = acc_t<T>;
  A sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < cols; ++c) sum += load(x, c);
  mean = sum / A(cols);
  const A m = mean;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < cols; ++c) squares += (load(x, c) - m) * (load(x, c) - m);
  rstd = A(1) / std::sqrt(squares / A(cols) + eps);
}

static int64_t row_grain(int64_t cols) { return kGrain / std::max<int64_t>(cols, 1) + 1; }

void layernorm_fwd(const Ctx&, RowShape s, CBuf x, CBuf gamma, CBuf beta, Out y, Out stats, float eps) {
  check_dtype("layernorm_fwd", x.t, y.t, y.p, "y");
  check_dtype("layernorm_fwd", x.t, gamma.t, gamma.p, "gamma");
  check_dtype("layernorm_fwd", x.t, beta.t, beta.p, "beta");
  visit_float("layernorm_fwd", x.t, [&]<class T>() {
    using A = acc_t<T>;
    check_stats<T>("layernorm_fwd", stats.t, stats.p);
    visit_write(y.w, [&]<Write W>() {
      parallel_for(s.rows, row_grain(s.cols), [&](int64_t begin, int64_t end) {
        const T *g = gamma.as<T>(), *b = beta.as<T>();
        for (int64_t r = begin; r < end; ++r) {
          const T* in = x.as<T>() + r * s.cols;
          T* out = y.as<T>() + r * s.cols;
          A mean, rstd;
          row_statistics(in, s.cols, A(eps), mean, rstd);
#pragma omp simd
          for (int64_t c = 0; c < s.cols; ++c)
            store<W>(out, c, (load(in, c) - mean) * rstd * load(g, c) + load(b, c));
          if (!stats.wanted()) continue;
          visit_write(stats.w, [&]<Write WS>() {
            store<WS>(stats.as<A>(), 2 * r, mean);
            store<WS>(stats.as<A>(), 2 * r + 1, rstd);
          });
        }
      });
    });
  });
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma; the parameters' sums of this row go to dgamma
// and dbeta.
template <class T, Write W>
static void layernorm_bwd_row(const T* x, const T* gamma, const T* dy, int64_t cols, acc_t<T> mean,
                              acc_t<T> rstd, T* dx, acc_t<T>* dgamma, acc_t<T>* dbeta) {
  using A = acc_t<T>;
  A sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
  for (int64_t c = 0; c < cols; ++c) {
    const A g = load(dy, c) * load(gamma, c), xhat = (load(x, c) - mean) * rstd;
    sum += g;
    dot += g * xhat;
  }
  const A mean_g = sum / A(cols), mean_dot = dot / A(cols);
  if (dx) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      const A g = load(dy, c) * load(gamma, c), xhat = (load(x, c) - mean) * rstd;
      store<W>(dx, c, rstd * (g - mean_g - xhat * mean_dot));
    }
  }
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    dgamma[c] += load(dy, c) * ((load(x, c) - mean) * rstd);
    dbeta[c] += load(dy, c);
  }
}

void layernorm_bwd(const Ctx& ctx, RowShape s, CBuf x, CBuf gamma, CBuf stats, CBuf dy, Out dx, Out dgamma,
                   Out dbeta) {
  check_dtype("layernorm_bwd", x.t, gamma.t, gamma.p, "gamma");
  check_dtype("layernorm_bwd", x.t, dy.t, dy.p, "dy");
  check_dtype("layernorm_bwd", x.t, dx.t, dx.p, "dx");
  visit_float("layernorm_bwd", x.t, [&]<class T>() {
    using A = acc_t<T>;
    check_stats<T>("layernorm_bwd", stats.t, stats.p);
    const int64_t P = cost::partitions(s.rows);
    A *partial_gamma = static_cast<A*>(ctx.scratch), *partial_beta = partial_gamma + P * s.cols;
    visit_write(dx.w, [&]<Write W>() {
      parallel_for(P, kGrain * P / std::max<int64_t>(s.rows * s.cols, 1) + 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t p = begin; p < end; ++p) {
                       A *g = partial_gamma + p * s.cols, *b = partial_beta + p * s.cols;
                       for (int64_t c = 0; c < s.cols; ++c) g[c] = b[c] = 0;
                       for (int64_t r = s.rows * p / P; r < s.rows * (p + 1) / P; ++r) {
                         const int64_t at = r * s.cols;
                         layernorm_bwd_row<T, W>(x.as<T>() + at, gamma.as<T>(), dy.as<T>() + at, s.cols,
                                                 stats.as<A>()[2 * r], stats.as<A>()[2 * r + 1],
                                                 dx.wanted() ? dx.as<T>() + at : nullptr, g, b);
                       }
                     }
                   });
    });
    A* sums = partial_beta + P * s.cols;
    for (const auto& [partial, out] : {std::pair(partial_gamma, dgamma), std::pair(partial_beta, dbeta)}) {
      if (!out.wanted()) continue;
      sum_partitions(P, s.cols, partial, sums);
      store_sums("layernorm_bwd", s.cols, sums, out);
    }
  });
}

}  // namespace gradus::cpu
