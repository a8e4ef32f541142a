#include "kernels/cuda/gpu.h"
#include "kernels/philox.h"

namespace gradus::GRADUS_GPU {

constexpr int kDropoutPiece = 4 * kThreads;  // elements of one sample that a block takes

// Every thread draws the four words of four adjacent elements. The threads exchange the words in shared
// memory, so that adjacent threads access adjacent elements in global memory. The first draw may begin `skip`
// elements before the call's first element.
template <Write W, class T>
__global__ void dropout_kernel(RowShape s, int64_t pieces, const StepScalars* scalars, const T* x, T* y,
                               float p, float factor, RandomKey key) {
  __shared__ Philox4 words[kThreads];
  const int64_t sample = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  words[threadIdx.x] = dropout_words(key.seed, key.step_in(*scalars), key.ordinal, key.first_sample + sample,
                                     key.first_element / 4 + piece * kThreads + threadIdx.x);
  __syncthreads();
  x += sample * s.cols, y += sample * s.cols;
  const int64_t skip = key.first_element % 4, begin = piece * kDropoutPiece - skip;
  float r[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int e = k * kThreads + threadIdx.x;
    const int64_t i = begin + e;
    if (i >= 0 && i < s.cols) r[k] = uniform01(words[e / 4][e % 4]) >= p ? load(x, i) * factor : 0.0f;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t i = begin + k * kThreads + threadIdx.x;
    if (i >= 0 && i < s.cols) store<W>(y, i, r[k]);
  }
}

void dropout(const Ctx& ctx, RowShape s, CBuf x, Out y, float p, RandomKey key) {
  check_dropout(x, y, p);
  const int64_t pieces = blocks_for(s.cols + key.first_element % 4, kDropoutPiece);
  visit_out("dropout", y, [&]<class T, Write W>() {
    launch(ctx, "dropout", unsigned(s.rows * pieces), kThreads, 0, dropout_kernel<W, T>, s, pieces,
           ctx.scalars, x.as<T>(), y.as<T>(), p, 1.0f / (1.0f - p), key);
  });
}

}  // namespace gradus::GRADUS_GPU
