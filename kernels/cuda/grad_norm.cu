#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// A part of the list of gradients, as the argument of a launch (which takes at most 4 KB).
struct GradChunk {
  static constexpr int kMost = 128;
  int count;
  CBuf items[kMost];
  int64_t sizes[kMost];
};

// What this thread sums of one gradient. In fp64: squares of fp32 would overflow from 2^64 on. Many loads of
// a thread are under way at once, because there are few threads: the number of blocks is fixed.
template <class T>
static __device__ double sum_squares(const void* grad, int64_t n) {
  const T* g = static_cast<const T*>(grad);
  double sum = 0;
#pragma unroll 16
  for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < n; i += cost::kNormBlocks * kThreads) {
    const double v = load(g, i);
    sum += v * v;
  }
  return sum;
}

// partial[b] <- what block b sums of the gradients of a chunk; with Add, added to the chunks before.
static __global__ void squares_kernel(GradChunk grads, double* partial, Write write) {
  double sum = 0;
  for (int i = 0; i < grads.count; ++i) {
    const CBuf g = grads.items[i];
    visit_in_kernel(g.t, [&]<class T>() { sum += sum_squares<T>(g.p, grads.sizes[i]); });
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = write == Write::Add ? partial[blockIdx.x] + sum : sum;
}

// One block: the norm from the partial sums.
static __global__ void norm_kernel(const double* partial, float max_norm, StepScalars* scalars) {
  double sum = 0;
  for (int64_t b = threadIdx.x; b < cost::kNormBlocks; b += kThreads) sum += partial[b];
  const double scale = scalars->loss_scale, norm = sqrt(block_sum(sum)) / scale;
  if (threadIdx.x != 0) return;
  scalars->grad_norm = float(norm);
  // A norm that is not a number must not hide behind a factor of 1: it is passed on.
  const double factor = max_norm / (norm + 1e-6);
  scalars->clip_factor = float((max_norm > 0 && !(factor >= 1) ? factor : 1) / scale);
}

void grad_norm(const Ctx& ctx, BufList grads, float max_norm) {
  double* const partial = static_cast<double*>(ctx.scratch);
  for (int64_t i = 0; i < grads.count; ++i) visit_gpu("grad_norm", grads.items[i].t, [&]<class T>() {});
  for (int64_t at = 0; at == 0 || at < grads.count; at += GradChunk::kMost) {  // an empty list has a norm too
    GradChunk chunk = {};
    for (int64_t i = at; i < std::min(grads.count, at + GradChunk::kMost); ++i) {
      chunk.items[chunk.count] = grads.items[i];
      chunk.sizes[chunk.count++] = grads.sizes[i];
    }
    launch(ctx, "grad_norm", unsigned(cost::kNormBlocks), kThreads, 0, squares_kernel, chunk, partial,
           at == 0 ? Write::Set : Write::Add);
  }
  launch(ctx, "grad_norm", 1, kThreads, 0, norm_kernel, partial, max_norm, ctx.scalars);
}

}  // namespace gradus::GRADUS_GPU
