#include "kernels/cuda/param_list.h"

namespace gradus::GRADUS_GPU {

struct Direction {
  int64_t n;
  CBuf grad;
  Out m, direction;
  float momentum;
  const UpdateScalars* scalars;
  __device__ float blend(float m, float g) const {
    return momentum * m + (1.0f - momentum) * (scalars->clip_factor * g);
  }
};

// The new momentum, and each block's sum of the squares of d. The number of blocks is fixed.
static __global__ void momentum_kernel(Direction x, double* partial) {
  if (x.scalars->skip) return;
  double sum = 0;
  for (int64_t first = int64_t(blockIdx.x) * kGroup + threadIdx.x; first < x.n;
       first += cost::kNormBlocks * kGroup) {
    float g[kEach], m[kEach];
    read(x.grad, first, x.n, g);
    read(x.m, first, x.n, m);
#pragma unroll
    for (int k = 0; k < kEach; ++k) m[k] = x.blend(m[k], g[k]);
    write(x.m, first, x.n, m);
    read(x.m, first, x.n, m);  // the rounded values
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const double d = x.blend(m[k], g[k]);  // 0 past the end, where both are 0
      sum += d * d;
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

static __global__ void direction_kernel(Direction x, const double* partial) {
  if (x.scalars->skip) return;
  double sum = 0;
  for (int64_t b = threadIdx.x; b < cost::kNormBlocks; b += kThreads) sum += partial[b];
  const double norm = sqrt(block_sum(sum));
  const float divisor = float(norm < 1e-7 ? 1e-7 : norm);
  const int64_t first = int64_t(blockIdx.x) * kGroup + threadIdx.x;
  float g[kEach], m[kEach], d[kEach];
  read(x.grad, first, x.n, g);
  read(x.m, first, x.n, m);
#pragma unroll
  for (int k = 0; k < kEach; ++k) d[k] = x.blend(m[k], g[k]) / divisor;
  if (x.direction.w == Write::Add) {
    float old[kEach];
    read(x.direction, first, x.n, old);
#pragma unroll
    for (int k = 0; k < kEach; ++k) d[k] = __fadd_rn(old[k], d[k]);
  }
  write(x.direction, first, x.n, d);
}

void muon_direction(const Ctx& ctx, int64_t n, CBuf grad, Out m, Out direction, float momentum) {
  for (const DType t : {grad.t, m.t, direction.t}) visit_gpu("muon_direction", t, [&]<class T>() {});
  double* const partial = static_cast<double*>(ctx.scratch);
  const Direction x{n, grad, m, direction, momentum, ctx.update};
  launch(ctx, "muon_direction", unsigned(cost::kNormBlocks), kThreads, 0, momentum_kernel, x, partial);
  if (direction.wanted())
    launch(ctx, "muon_direction", blocks_for(n, kGroup), kThreads, 0, direction_kernel, x, partial);
}

}  // namespace gradus::GRADUS_GPU
