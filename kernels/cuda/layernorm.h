// The layernorm of a row, computed by the row's block.
#pragma once
#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

struct RowStatistics {
  float mean, rstd;
};

// Mean and 1/sqrt(var + eps) of a row, computed by its whole block in two passes; the second finds the row in
// the cache. It sums the differences from a first mean, so that a large mean does not cancel the variance,
// and corrects the first mean by the mean of these differences (Chan, Golub & LeVeque 1983, "Algorithms for
// computing the sample variance", eq. 1.7).
template <class T>
__device__ RowStatistics row_statistics(int64_t cols, const T* x, float eps) {
  float sum = 0, rest = 0, squares = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += load(x, c);
  const float first = block_sum(sum) / float(cols);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const float d = load(x, c) - first;
    rest += d;
    squares += d * d;
  }
  const float correction = block_sum(rest) / float(cols);
  const float var = block_sum(squares) / float(cols) - correction * correction;
  return {first + correction, 1.0f / sqrtf((var < 0 ? 0.0f : var) + eps)};  // fmaxf would drop a NaN
}

template <Write W, class T>
__device__ void layernorm_row(RowStatistics s, int64_t cols, const T* x, const T* gamma, const T* beta,
                              T* y) {
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    store<W>(y, c, (load(x, c) - s.mean) * s.rstd * load(gamma, c) + load(beta, c));
}

}  // namespace gradus::GRADUS_GPU
