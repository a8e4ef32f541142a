// Shared by kernels over rows: the width of a row's block, the sum of a row's exponentials, and the sums of
// columns.
#pragma once
#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// The threads of a row's block. Adjacent threads take adjacent columns, then move on by the block's width.
// The block has whole warps, and few of them if the row is short.
inline unsigned row_threads(int64_t cols) {
  return unsigned(std::clamp<int64_t>((cols + kWarp - 1) / kWarp * kWarp, kWarp, kThreads));
}

// e^(x - shift). A shift of -infinity, which a row of only -infinity has, counts as 0, because -inf - -inf is
// NaN.
inline __device__ float shifted_exp(float x, float shift) {
  return expf(x - (shift == -INFINITY ? 0.0f : shift));
}

// The sum of a row's e^x is e^shift sum; shift is the row's maximum.
struct ExpSum {
  float shift, sum;
};

// All threads of the row's block must call it; all get the result. The row is read once: each thread rescales
// its sum whenever it finds a larger element (Milakov & Gimelshein 2018, "Online normalizer calculation for
// softmax", alg. 3). NaN does not become the maximum, but reaches the sum; a row of only -infinity has sum 0.
template <class T>
__device__ ExpSum exp_sum(int64_t cols, const T* x) {
  float max = -INFINITY, sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const float v = load(x, c);
    if (v > max) {
      sum *= expf(max - v);
      max = v;
    }
    sum += shifted_exp(v, max);
  }
  const float shift = block_max(max);
  return {shift, block_sum(sum * shifted_exp(max, shift))};
}

// Sums of columns, in two steps. First, partial[k][p][column] <- the sum over partition p of the rows, for
// all F::kSums sums k at once; f(row, column, sums) adds one element's part.
constexpr int kColumns = 64;  // of a block: few, because the grid has only columns / 64 x partitions blocks
template <class F>
__global__ void partial_sums_kernel(RowShape s, float* partial, F f) {
  const int64_t c = int64_t(blockIdx.x) * kColumns + threadIdx.x, p = blockIdx.y, P = gridDim.y;
  if (c >= s.cols) return;
  float sums[F::kSums] = {};
  for (int64_t r = s.rows * p / P; r < s.rows * (p + 1) / P; ++r) f(r, c, sums);
  for (int k = 0; k < F::kSums; ++k) partial[(k * P + p) * s.cols + c] = sums[k];
}
template <class F>
void partial_sums(const Ctx& ctx, const char* name, RowShape s, F f) {
  const dim3 grid(blocks_for(s.cols, kColumns), unsigned(cost::partitions(s.rows)));
  launch(ctx, name, grid, kColumns, 0, partial_sums_kernel<F>, s, static_cast<float*>(ctx.scratch), f);
}

// Then the partitions are added in order.
struct TotalSum {
  const float* partial;
  int64_t partitions, cols;
  __device__ float operator()(int64_t c) const {
    float sum = 0;
    for (int64_t p = 0; p < partitions; ++p) sum += partial[p * cols + c];
    return sum;
  }
};
// y <- the k-th of the sums.
inline void total_sums(const Ctx& ctx, const char* name, RowShape s, int k, Out y) {
  const int64_t P = cost::partitions(s.rows);
  const TotalSum total{static_cast<const float*>(ctx.scratch) + k * P * s.cols, P, s.cols};
  visit_gpu(name, y.t, [&]<class T>() { map_as<T>(ctx, name, s.cols, y, total); });
}

}  // namespace gradus::GRADUS_GPU
