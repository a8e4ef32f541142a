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

// One thread each. The GPU decides, so the host need not read the norm back.
static __global__ void begin_update_kernel(StepScalars* s, UpdateScalars* u, bool clipped) {
  if (!clipped) u->clip_factor = 1;
  u->skip = s->growth_interval > 0 && !std::isfinite(u->grad_norm);
  if (u->skip)
    ++s->overflows;
  else
    ++u->updates;
}
static __global__ void update_loss_scale_kernel(StepScalars* s) {
  const bool overflow = s->overflows > 0;
  s->overflows = 0;
  if (!overflow && ++s->good_updates < s->growth_interval) return;
  const float scale = s->loss_scale * (overflow ? 0.5f : 2.0f);
  if (std::isfinite(scale) && scale > 0) s->loss_scale = scale;
  s->good_updates = 0;
}
static __global__ void copy_step_kernel(const StepScalars* s, int64_t* step) { *step = s->step; }

void begin_update(const Ctx& ctx, bool clipped) {
  launch(ctx, "begin_update", 1, 1, 0, begin_update_kernel, ctx.scalars, ctx.update, clipped);
}
void update_loss_scale(const Ctx& ctx) {
  launch(ctx, "update_loss_scale", 1, 1, 0, update_loss_scale_kernel, ctx.scalars);
}
void copy_step(const Ctx& ctx, Out step) {
  launch(ctx, "copy_step", 1, 1, 0, copy_step_kernel, ctx.scalars, step.as<int64_t>());
}

}  // namespace gradus::GRADUS_GPU
