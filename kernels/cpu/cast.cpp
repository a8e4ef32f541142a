#include "kernels/cpu/io.h"

namespace gradus::cpu {

void cast(const Ctx&, int64_t n, CBuf x, Out y) {
  visit_float("cast", x.t, [&]<class X>() {
    visit_float("cast", y.t, [&]<class Y>() {
      const X* in = x.as<X>();
      map<Y>(n, y, [=](int64_t i) { return acc_t<Y>(load(in, i)); });
    });
  });
}

}  // namespace gradus::cpu
