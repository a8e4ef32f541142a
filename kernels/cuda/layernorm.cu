#include "kernels/cuda/layernorm.h"

namespace gradus::GRADUS_GPU {

template <Write W, Write WStats, class T>
__global__ void layernorm_fwd_kernel(int64_t cols, const T* a, const T* b, T* x, const T* gamma,
                                     const T* beta, T* y, float* stats, float eps) {
  const int64_t r = blockIdx.x, row = r * cols;
  if (a)  // no barrier after it: each thread reads only the elements that it has written
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
      store<Write::Set>(x, row + c, load(a, row + c) + load(b, row + c));
  const RowStatistics s = row_statistics(cols, x + row, eps);
  if (stats && threadIdx.x == 0) {
    store<WStats>(stats, 2 * r, s.mean);
    store<WStats>(stats, 2 * r + 1, s.rstd);
  }
  if (y) layernorm_row<W>(s, cols, x + row, gamma, beta, y + row);
}

// If `a` is given, x <- a + b first.
static void normalize(const char* op, const Ctx& ctx, RowShape s, CBuf a, CBuf b, CBuf x, CBuf gamma,
                      CBuf beta, Out y, Out stats, float eps) {
  visit_gpu(op, x.t, [&]<class T>() {
    visit_write(y.w, [&]<Write W>() {
      visit_write(stats.w, [&]<Write WStats>() {
        launch(ctx, op, unsigned(s.rows), row_threads(s.cols), 0, layernorm_fwd_kernel<W, WStats, T>, s.cols,
               a.as<T>(), b.as<T>(), const_cast<T*>(x.as<T>()), gamma.as<T>(), beta.as<T>(), y.as<T>(),
               stats.as<float>(), eps);
      });
    });
  });
}
void layernorm_fwd(const Ctx& ctx, RowShape s, CBuf x, CBuf gamma, CBuf beta, Out y, Out stats, float eps) {
  check_layernorm_fwd(x, gamma, beta, y, stats);
  normalize("layernorm_fwd", ctx, s, {nullptr, x.t}, {nullptr, x.t}, x, gamma, beta, y, stats, eps);
}
void add_layernorm_fwd(const Ctx& ctx, RowShape s, CBuf a, CBuf b, CBuf gamma, CBuf beta, Out sum, Out y,
                       Out stats, float eps) {
  check_add_layernorm_fwd(a, b, gamma, beta, sum, y, stats);
  normalize("add_layernorm_fwd", ctx, s, a, b, {sum.p, sum.t}, gamma, beta, y, stats, eps);
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma; plus dsum, if it is given.
template <Write W, class T>
__global__ void layernorm_bwd_kernel(int64_t cols, const T* x, const T* gamma, const float* stats,
                                     const T* dy, const T* dsum, T* dx) {
  const int64_t r = blockIdx.x, row = r * cols;
  const float mean = stats[2 * r], rstd = stats[2 * r + 1];
  float sum = 0, dot = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const float g = load(dy, row + c) * load(gamma, c);
    sum += g;
    dot += g * ((load(x, row + c) - mean) * rstd);
  }
  const float mean_g = block_sum(sum) / float(cols), mean_dot = block_sum(dot) / float(cols);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const float g = load(dy, row + c) * load(gamma, c), xhat = (load(x, row + c) - mean) * rstd;
    const float slope = rstd * (g - mean_g - xhat * mean_dot);
    store<W>(dx, row + c, dsum ? __fadd_rn(slope, load(dsum, row + c)) : slope);
  }
}

// dgamma = sum dy xhat and dbeta = sum dy, over rows.
template <class T>
struct LayerNormSums {
  static constexpr int kSums = 2;
  const T* x;
  const float* stats;
  const T* dy;
  int64_t cols;
  __device__ void operator()(int64_t r, int64_t c, float* sums) const {
    const float g = load(dy, r * cols + c), mean = stats[2 * r], rstd = stats[2 * r + 1];
    sums[0] += g * ((load(x, r * cols + c) - mean) * rstd);
    sums[1] += g;
  }
};

static void normalize_bwd(const char* op, const Ctx& ctx, RowShape s, CBuf x, CBuf gamma, CBuf stats, CBuf dy,
                          CBuf dsum, Out dx, Out dgamma, Out dbeta) {
  visit_gpu(op, x.t, [&]<class T>() {
    visit_write(dx.w, [&]<Write W>() {
      if (dx.wanted())
        launch(ctx, op, unsigned(s.rows), row_threads(s.cols), 0, layernorm_bwd_kernel<W, T>, s.cols,
               x.as<T>(), gamma.as<T>(), stats.as<float>(), dy.as<T>(), dsum.as<T>(), dx.as<T>());
    });
    if (dgamma.wanted() || dbeta.wanted())
      partial_sums(ctx, op, s, LayerNormSums<T>{x.as<T>(), stats.as<float>(), dy.as<T>(), s.cols});
  });
  if (dgamma.wanted()) total_sums(ctx, op, s, 0, dgamma);
  if (dbeta.wanted()) total_sums(ctx, op, s, 1, dbeta);
}
void layernorm_bwd(const Ctx& ctx, RowShape s, CBuf x, CBuf gamma, CBuf stats, CBuf dy, Out dx, Out dgamma,
                   Out dbeta) {
  check_layernorm_bwd(x, gamma, stats, dy, dx, dgamma, dbeta);
  normalize_bwd("layernorm_bwd", ctx, s, x, gamma, stats, dy, {nullptr, x.t}, dx, dgamma, dbeta);
}
void add_layernorm_bwd(const Ctx& ctx, RowShape s, CBuf x, CBuf gamma, CBuf stats, CBuf dy, CBuf dsum, Out dx,
                       Out dgamma, Out dbeta) {
  check_add_layernorm_bwd(x, gamma, stats, dy, dsum, dx, dgamma, dbeta);
  normalize_bwd("add_layernorm_bwd", ctx, s, x, gamma, stats, dy, dsum, dx, dgamma, dbeta);
}

}  // namespace gradus::GRADUS_GPU
