#include "kernels/cuda/param_list.h"

namespace gradus::GRADUS_GPU {

static __global__ void sgd_kernel(ParamChunk params, const UpdateScalars* scalars, SgdArgs args) {
  if (scalars->skip) return;
  const int item = item_of_block(params);
  const ParamUpdate u = params.items[item];
  const float lr = scalars->learning_rate, clip = args.scale * (args.clips ? scalars->clip_factor : 1.0f);
  const float decay = u.decay ? args.weight_decay : 0.0f;
  update_weights(params, item, u, [&](int64_t first, float(&w)[kEach]) {
    float g[kEach], m[kEach] = {};
    read(u.grad, first, u.n, g);
    if (u.m.p) read(u.m, first, u.n, m);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const float step = clip * g[k] + decay * w[k];
      m[k] = args.momentum * m[k] + step;
      w[k] -= lr * (args.nesterov && u.m.p ? step + args.momentum * m[k] : m[k]);
    }
    if (u.m.p) write(u.m, first, u.n, m);
  });
}

void sgd(const Ctx& ctx, ParamList list, SgdArgs args) {
  for (int64_t i = 0; i < list.count; ++i) check_update("sgd", list.items[i]);
  launch_list(ctx, "sgd", list, sgd_kernel, ctx.update, args);
}

}  // namespace gradus::GRADUS_GPU
