#include "kernels/cuda/adamw.h"

namespace gradus::GRADUS_GPU {

static __global__ void adamw_kernel(ParamChunk params, const UpdateScalars* scalars, AdamWArgs args) {
  if (scalars->skip) return;
  const int item = item_of_block(params);
  const ParamUpdate u = params.items[item];
  const AdamWStep step(args, *scalars, u);
  update_weights(params, item, u, [&](int64_t first, float(&w)[kEach]) {
    float grad[kEach], m[kEach], v[kEach];
    read(u.grad, first, u.n, grad);
    read(u.m, first, u.n, m);
    read(u.v, first, u.n, v);
#pragma unroll
    for (int k = 0; k < kEach; ++k) step.update(grad[k], w[k], m[k], v[k]);
    write(u.m, first, u.n, m);
    write(u.v, first, u.n, v);
  });
}

void adamw(const Ctx& ctx, ParamList list, AdamWArgs args) {
  for (int64_t i = 0; i < list.count; ++i) check_update("adamw", list.items[i]);
  launch_list(ctx, "adamw", list, adamw_kernel, ctx.update, args);
}

}  // namespace gradus::GRADUS_GPU
