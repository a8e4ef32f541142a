#include "kernels/cuda/gelu.h"

namespace gradus::GRADUS_GPU {

void gelu_erf_fwd(const Ctx& ctx, int64_t n, CBuf x, Out y) {
  map(ctx, "gelu_erf_fwd", n, y, {{"x", x}}, GeluErfFwd());
}

void gelu_erf_bwd(const Ctx& ctx, int64_t n, CBuf x, CBuf dy, Out dx) {
  map(ctx, "gelu_erf_bwd", n, dx, {{"x", x}, {"dy", dy}}, GeluErfBwd());
}

}  // namespace gradus::GRADUS_GPU
