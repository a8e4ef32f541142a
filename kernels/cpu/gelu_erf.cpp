#include "kernels/cpu/gelu.h"
#include "kernels/cpu/io.h"

namespace gradus::cpu {

void gelu_erf_fwd(const Ctx&, int64_t n, CBuf x, Out y) { map("gelu_erf_fwd", n, y, {{"x", x}}, kGeluErf); }

void gelu_erf_bwd(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx) {
  map("gelu_erf_bwd", n, dx, {{"x", x}, {"dy", dy}}, kGeluErfBwd);
}

}  // namespace gradus::cpu
