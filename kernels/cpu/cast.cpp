#include "kernels/cpu/io.h"

namespace gradus::cpu {

void cast(const Ctx&, int64_t n, CBuf x, Out y) {
  visit_float("cast", x.t, [&]<class X>() {
    visit_float("cast", y.t, [&]<class Y>() {
      map_as<Y>(
          n, y, [](acc_t<X> x) { return acc_t<Y>(x); }, x.as<X>());
    });
  });
}

}  // namespace gradus::cpu
