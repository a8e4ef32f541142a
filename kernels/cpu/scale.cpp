#include "kernels/cpu/io.h"

namespace gradus::cpu {

void scale(const Ctx&, int64_t n, CBuf x, Out y, float alpha) {
  map("scale", n, y, {{"x", x}}, [alpha](auto x) { return alpha * x; });
}

void scale_by_ratio_inplace(const Ctx&, int64_t n, CBuf a, CBuf b, Out x) {
  check_scale_by_ratio_inplace(a, b, x);
  visit_float("scale_by_ratio_inplace", x.t, [&]<class T>() {
    using A = acc_t<T>;
    const A ratio = a.as<A>()[0] / b.as<A>()[0];
    if (ratio == A(1)) return;  // x is already the result
    map_as<T>(
        n, x, [ratio](A x) { return ratio * x; }, x.as<T>());
  });
}

}  // namespace gradus::cpu
