#include "kernels/cpu/io.h"

namespace gradus::cpu {

void scale(const Ctx&, int64_t n, CBuf x, Out y, float alpha) {
  map("scale", n, y, {{"x", x}}, [alpha](auto x) { return alpha * x; });
}

void scale_by_ratio(const Ctx&, int64_t n, CBuf x, CBuf a, CBuf b, Out y) {
  check_scale_by_ratio(x, a, b, y);
  visit_float("scale_by_ratio", x.t, [&]<class T>() {
    using A = acc_t<T>;
    const A ratio = a.as<A>()[0] / b.as<A>()[0];
    if (ratio == A(1) && x.p == y.p && y.w == Write::Set) return;  // it is there
    map_as<T>(
        n, y, [ratio](A x) { return ratio * x; }, x.as<T>());
  });
}

}  // namespace gradus::cpu
