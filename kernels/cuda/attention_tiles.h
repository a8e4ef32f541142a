// Operations of attention_flash's blocks, which have 16 x 16 threads, on tiles of vectors and weights in
// shared memory. Of a tile of weights, thread (ty, tx) has rows ty + 16 i and columns tx + 16 j in its
// registers; of a tile of sums of vectors it has the same rows, and dimensions tx + 16 c. kRows is the number
// of rows per thread: a tile has 16 kRows rows and columns.
#pragma once
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_sizes.h"

namespace gradus::GRADUS_GPU {

inline __device__ int thread_row() { return threadIdx.x / kSide; }
inline __device__ int thread_col() { return threadIdx.x % kSide; }

// Tiles in shared memory, fp32: vectors (rows, kDims), with zeros from D on, and weights. Each line has an
// unused column at its end, so that the threads of a warp, which read down a column, read from different
// banks.
template <int kDims>
constexpr int kVectorLine = kDims + 1;
template <int kRows>
constexpr int kWeightLine = kSide* kRows + 1;
template <int kRows, int kDims>
constexpr int kVectors = kSide* kRows* kVectorLine<kDims>;
template <int kRows>
constexpr int kWeights = kSide* kRows* kWeightLine<kRows>;

// tile <- rows [first, end) of x, and zeros past the end.
template <int kRows, int kDims, class T>
__device__ void load_tile(const AttentionShape& s, const T* x, int64_t time, int64_t first, int64_t end,
                          float* tile) {
  for (int e = threadIdx.x; e < kSide * kRows * kDims; e += kThreads) {
    const int row = e / kDims, d = e % kDims;
    tile[row * kVectorLine<kDims> + d] =
        first + row < end && d < s.D ? load(x, (first + row) * time + d) : 0.0f;
  }
}

// The thread's part of a b^T.
template <int kRows, int kDims>
__device__ void dot_tiles(const float* a, const float* b, float (&dots)[kRows][kRows]) {
  a += thread_row() * kVectorLine<kDims>, b += thread_col() * kVectorLine<kDims>;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kRows; ++j) dots[i][j] = 0;
  for (int d = 0; d < kDims; ++d) {
    float a_d[kRows], b_d[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      a_d[i] = a[i * kSide * kVectorLine<kDims> + d];
      b_d[i] = b[i * kSide * kVectorLine<kDims> + d];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kRows; ++j) dots[i][j] += a_d[i] * b_d[j];
  }
}

// The thread's part of sums += weights x. The tile is summed first, because a long sum in blocks has a
// smaller error.
template <int kRows, int kDims>
__device__ void add_weighted(const float* weights, const float* x, float (&sums)[kRows][kDims / kSide]) {
  weights += thread_row() * kWeightLine<kRows>, x += thread_col();
  float tile[kRows][kDims / kSide] = {};
  for (int j = 0; j < kSide * kRows; ++j) {
#pragma unroll
    for (int c = 0; c < kDims / kSide; ++c) {
      const float x_jc = x[j * kVectorLine<kDims> + c * kSide];
#pragma unroll
      for (int i = 0; i < kRows; ++i) tile[i][c] += weights[i * kSide * kWeightLine<kRows> + j] * x_jc;
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int c = 0; c < kDims / kSide; ++c) sums[i][c] += tile[i][c];
}

// The thread's part of out <- factor * sums; `head` is the offset of the head in out.
template <class T, int kRows, int kDims>
__device__ void store_sums(const AttentionShape& s, const Place& p, const float (&sums)[kRows][kDims / kSide],
                           float factor, Out out, int64_t head, int64_t time) {
  for (int i = 0; i < kRows; ++i)
    for (int c = 0; c < kDims / kSide; ++c) {
      const int64_t t = p.first + thread_row() + i * kSide, d = thread_col() + c * kSide;
      if (t < p.end && d < s.D) store(out.w, out.as<T>() + head, t * time + d, factor * sums[i][c]);
    }
}

// The offset, in a tile of weights, of the thread's row i and column j.
template <int kRows>
__device__ int weight_at(int i, int j) {
  return (thread_row() + i * kSide) * kWeightLine<kRows> + thread_col() + j * kSide;
}

// Reductions over the 16 threads of a row, which are half a warp.
inline __device__ float row_max(float x) { return warp_max<kSide>(x); }
inline __device__ float row_sum(float x) { return warp_sum<kSide>(x); }

}  // namespace gradus::GRADUS_GPU
