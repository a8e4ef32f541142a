#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

// A row's block computes rstd first; then it finds the row in the cache.
template <Write W, Write WStats, class T>
__global__ void rmsnorm_fwd_kernel(int64_t cols, const T* x, const T* gamma, T* y, float* stats, float eps) {
  const int64_t r = blockIdx.x, row = r * cols;
  float squares = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) squares += load(x, row + c) * load(x, row + c);
  const float rstd = 1.0f / sqrtf(block_sum(squares) / float(cols) + eps);
  if (stats && threadIdx.x == 0) store<WStats>(stats, r, rstd);
  if (!y) return;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    store<W>(y, row + c, load(x, row + c) * rstd * load(gamma, c));
}

void rmsnorm_fwd(const Ctx& ctx, RowShape s, CBuf x, CBuf gamma, Out y, Out stats, float eps) {
  check_rmsnorm_fwd(x, gamma, y, stats);
  visit_gpu("rmsnorm_fwd", x.t, [&]<class T>() {
    visit_write(y.w, [&]<Write W>() {
      visit_write(stats.w, [&]<Write WStats>() {
        launch(ctx, "rmsnorm_fwd", unsigned(s.rows), row_threads(s.cols), 0, rmsnorm_fwd_kernel<W, WStats, T>,
               s.cols, x.as<T>(), gamma.as<T>(), y.as<T>(), stats.as<float>(), eps);
      });
    });
  });
}

// dx = rstd (g - xhat mean(g xhat)), g = dy gamma, xhat = x rstd.
template <Write W, class T>
__global__ void rmsnorm_bwd_kernel(int64_t cols, const T* x, const T* gamma, const float* stats, const T* dy,
                                   T* dx) {
  const int64_t r = blockIdx.x, row = r * cols;
  const float rstd = stats[r];
  float dot = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    dot += load(dy, row + c) * load(gamma, c) * (load(x, row + c) * rstd);
  const float mean_dot = block_sum(dot) / float(cols);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    store<W>(dx, row + c, rstd * (load(dy, row + c) * load(gamma, c) - load(x, row + c) * rstd * mean_dot));
}

// dgamma = sum dy xhat, over rows.
template <class T>
struct RmsNormSums {
  static constexpr int kSums = 1;
  const T* x;
  const float* stats;
  const T* dy;
  int64_t cols;
  __device__ void operator()(int64_t r, int64_t c, float* sums) const {
    sums[0] += load(dy, r * cols + c) * (load(x, r * cols + c) * stats[r]);
  }
};

void rmsnorm_bwd(const Ctx& ctx, RowShape s, CBuf x, CBuf gamma, CBuf stats, CBuf dy, Out dx, Out dgamma) {
  constexpr const char* op = "rmsnorm_bwd";
  check_rmsnorm_bwd(x, gamma, stats, dy, dx, dgamma);
  visit_gpu(op, x.t, [&]<class T>() {
    visit_write(dx.w, [&]<Write W>() {
      if (dx.wanted())
        launch(ctx, op, unsigned(s.rows), row_threads(s.cols), 0, rmsnorm_bwd_kernel<W, T>, s.cols, x.as<T>(),
               gamma.as<T>(), stats.as<float>(), dy.as<T>(), dx.as<T>());
    });
    if (dgamma.wanted())
      partial_sums(ctx, op, s, RmsNormSums<T>{x.as<T>(), stats.as<float>(), dy.as<T>(), s.cols});
  });
  if (dgamma.wanted()) total_sums(ctx, op, s, 0, dgamma);
}

}  // namespace gradus::GRADUS_GPU
