#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

struct TanhFwd {
  __device__ float operator()(float x) const { return tanhf(x); }
};
struct TanhBwd {
  __device__ float operator()(float y, float dy) const { return dy * (1.0f - y * y); }
};

void tanh_fwd(const Ctx& ctx, int64_t n, CBuf x, Out y) { map(ctx, "tanh_fwd", n, y, {{"x", x}}, TanhFwd()); }

void tanh_bwd(const Ctx& ctx, int64_t n, CBuf y, CBuf dy, Out dx) {
  map(ctx, "tanh_bwd", n, dx, {{"y", y}, {"dy", dy}}, TanhBwd());
}

}  // namespace gradus::GRADUS_GPU
