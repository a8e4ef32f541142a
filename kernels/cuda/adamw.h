// AdamW's arithmetic for one element.
#pragma once
#include "kernels/cuda/param_list.h"

namespace gradus::GRADUS_GPU {

// The constants of one step for one parameter. All threads of a block must call the constructor.
struct AdamWStep {
  AdamWArgs args;
  float lr, clip, decay, m_factor, v_factor;

  __device__ AdamWStep(const AdamWArgs& args, const UpdateScalars& scalars, const ParamUpdate& u)
      : args(args), lr(scalars.learning_rate), clip(scalars.clip_factor) {
    __shared__ float factors[2];
    if (threadIdx.x == 0) {
      device_check(scalars.updates > 0, "adamw: the number of updates is", scalars.updates, "; the first is",
                   1);
      factors[0] = unbias(args.beta1, scalars.updates);
      factors[1] = unbias(args.beta2, scalars.updates);
    }
    __syncthreads();
    m_factor = factors[0], v_factor = factors[1];
    decay = u.decay ? 1.0f - lr * args.weight_decay : 1.0f;
  }
  __device__ void update(float grad, float& w, float& m, float& v) const {
    const float g = clip * grad;
    m = args.beta1 * m + (1.0f - args.beta1) * g;
    v = args.beta2 * v + (1.0f - args.beta2) * g * g;
    w = decay * w - lr * (m * m_factor) / (sqrtf(v * v_factor) + args.eps);
  }

 private:
  // 1 / (1 - beta^updates) corrects moments that began at 0; in fp64, because the difference suffers from
  // cancellation.
  static __device__ float unbias(float beta, int64_t updates) {
    return float(1 / (1 - pow(double(beta), double(updates))));
  }
};

}  // namespace gradus::GRADUS_GPU
