#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// A part of the list of gradients, as the argument of a launch (arguments have at most 4 KB).
struct GradChunk {
  static constexpr int kMost = 128;
  int count;
  CBuf items[kMost];
  int64_t sizes[kMost];
};

// This thread's part of the sum of squares of one gradient. In fp64, because fp32 squares overflow from 2^64
// on. A thread has many loads in flight, because there are few threads: the number of blocks is fixed.
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

// partial[b] <- block b's part of the sum over a chunk of gradients; with Add, plus that of earlier chunks.
static __global__ void squares_kernel(GradChunk grads, double* partial, Write write) {
  double sum = 0;
  for (int i = 0; i < grads.count; ++i) {
    const CBuf g = grads.items[i];
    visit_in_kernel(g.t, [&]<class T>() { sum += sum_squares<T>(g.p, grads.sizes[i]); });
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = write == Write::Add ? partial[blockIdx.x] + sum : sum;
}

// One block: the sum of the partial sums.
static __global__ void sum_kernel(const double* partial, double* out, Write write) {
  double sum = 0;
  for (int64_t b = threadIdx.x; b < cost::kNormBlocks; b += kThreads) sum += partial[b];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = write == Write::Add ? *out + sum : sum;
}

// One thread.
static __global__ void norm_kernel(int64_t n, const double* sums, float max_norm, const StepScalars* s,
                                   UpdateScalars* u) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += sums[i];
  const double scale = s->loss_scale, norm = sqrt(sum) / scale;
  u->grad_norm = float(norm);
  // If the norm is NaN, the factor is NaN, too: a factor of 1 would hide the error.
  const double factor = max_norm / (norm + 1e-6);
  u->clip_factor = float((max_norm > 0 && !(factor >= 1) ? factor : 1) / scale);
}

// Scratch: the partial sums.
void sum_squares(const Ctx& ctx, BufList grads, Out sum) {
  constexpr const char* kName = "sum_squares";
  check_dtype(kName, DType::F64, {{"sum", sum}});
  if (!sum.wanted()) return;
  double* const partial = static_cast<double*>(ctx.scratch);
  for (int64_t i = 0; i < grads.count; ++i) visit_gpu(kName, grads.items[i].t, [&]<class T>() {});
  for (int64_t at = 0; at == 0 || at < grads.count; at += GradChunk::kMost) {  // an empty list has a norm too
    GradChunk chunk = {};
    for (int64_t i = at; i < std::min(grads.count, at + GradChunk::kMost); ++i) {
      chunk.items[chunk.count] = grads.items[i];
      chunk.sizes[chunk.count++] = grads.sizes[i];
    }
    launch(ctx, kName, unsigned(cost::kNormBlocks), kThreads, 0, squares_kernel, chunk, partial,
           at == 0 ? Write::Set : Write::Add);
  }
  launch(ctx, kName, 1, kThreads, 0, sum_kernel, partial, sum.as<double>(), sum.w);
}

void clip_factor(const Ctx& ctx, int64_t n, CBuf sums, float max_norm) {
  check_dtype("clip_factor", DType::F64, {{"sums", sums}});
  launch(ctx, "clip_factor", 1, 1, 0, norm_kernel, n, sums.as<double>(), max_norm, ctx.scalars, ctx.update);
}

}  // namespace gradus::GRADUS_GPU
