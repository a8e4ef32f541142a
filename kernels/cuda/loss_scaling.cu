#include <cmath>

#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

struct LossScale {
  const StepScalars* scalars;
  __device__ float operator()(int64_t /*i*/) const { return scalars->loss_scale; }
};

void loss_scale(const Ctx& ctx, Out dloss) {
  visit_gpu("loss_scale", dloss.t,
            [&]<class T>() { map_as<T>(ctx, "loss_scale", 1, dloss, LossScale{ctx.scalars}); });
}

// One thread: the host need not read the norm back to decide.
static __global__ void begin_update_kernel(StepScalars* s) {
  const bool finite = std::isfinite(s->grad_norm);
  s->skip = finite ? 0 : 1;
  if (finite) {
    ++s->updates;
    if (++s->good_updates < s->growth_interval) return;
  }
  const float scale = s->loss_scale * (finite ? 2.0f : 0.5f);
  if (std::isfinite(scale) && scale > 0) s->loss_scale = scale;
  s->good_updates = 0;
}

void begin_update(const Ctx& ctx) { launch(ctx, "begin_update", 1, 1, 0, begin_update_kernel, ctx.scalars); }

}  // namespace gradus::GRADUS_GPU
