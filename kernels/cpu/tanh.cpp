#include "kernels/cpu/io.h"

namespace gradus::cpu {

void tanh_fwd(const Ctx&, int64_t n, CBuf x, Out y) {
  map("tanh_fwd", n, y, {{"x", x}}, [](auto x) { return vtanh(x); });
}

void tanh_bwd(const Ctx&, int64_t n, CBuf y, CBuf dy, Out dx) {
  const auto slope = []<class A>(A y, A dy) {
    // BEGIN SOLUTION 02.3
    return dy * (A(1) - y * y);
    // STUB: todo("02.3", "dx from y = tanh(x) and dy", y, dy); return A(0);
    // END SOLUTION 02.3
  };
  map("tanh_bwd", n, dx, {{"y", y}, {"dy", dy}}, slope);
}

}  // namespace gradus::cpu
