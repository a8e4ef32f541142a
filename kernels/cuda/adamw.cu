#include "kernels/cuda/param_list.h"

namespace gradus::GRADUS_GPU {

// 1 / (1 - beta^updates), which undoes that the moments began at 0; in fp64, because the difference cancels.
static __device__ float unbias(float beta, int64_t updates) {
  return float(1 / (1 - pow(double(beta), double(updates))));
}

static __global__ void adamw_kernel(ParamChunk params, const StepScalars* scalars, AdamWArgs args) {
  if (scalars->skip) return;
  __shared__ float m_factor, v_factor;
  if (threadIdx.x == 0) {
    device_check(scalars->updates > 0, "adamw: the number of updates is", scalars->updates, "; the first is",
                 1);
    m_factor = unbias(args.beta1, scalars->updates);
    v_factor = unbias(args.beta2, scalars->updates);
  }
  __syncthreads();
  const int item = item_of_block(params);
  const ParamUpdate u = params.items[item];
  const Out updated = u.master.p ? u.master : u.value;
  const float lr = scalars->learning_rate, clip = scalars->clip_factor;
  const float decay = u.decay ? 1.0f - lr * args.weight_decay : 1.0f;
  const int64_t begin = int64_t(blockIdx.x - params.first_block[item]) * kPiece;
  for (int64_t first = begin + threadIdx.x; first < u.n && first < begin + kPiece; first += kGroup) {
    float w[kEach], grad[kEach], m[kEach], v[kEach];
    read(updated, first, u.n, w);
    read(u.grad, first, u.n, grad);
    read(u.m, first, u.n, m);
    read(u.v, first, u.n, v);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const float g = clip * grad[k];
      m[k] = args.beta1 * m[k] + (1.0f - args.beta1) * g;
      v[k] = args.beta2 * v[k] + (1.0f - args.beta2) * g * g;
      w[k] = decay * w[k] - lr * (m[k] * m_factor) / (sqrtf(v[k] * v_factor) + args.eps);
    }
    write(u.m, first, u.n, m);
    write(u.v, first, u.n, v);
    if (u.master.p) write(u.master, first, u.n, w);
    write(u.value, first, u.n, w);
  }
}

void adamw(const Ctx& ctx, ParamList list, AdamWArgs args) {
  launch_list(ctx, "adamw", list, adamw_kernel, ctx.scalars, args);
}

}  // namespace gradus::GRADUS_GPU
