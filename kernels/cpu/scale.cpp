#include "kernels/cpu/io.h"

namespace gradus::cpu {

void scale(const Ctx&, int64_t n, CBuf x, Out y, float alpha) {
  check_dtype("scale", y.t, {{"x", x}});
  visit_float("scale", y.t, [&]<class T>() {
    const T* in = x.as<T>();
    map<T>(n, y, [=](int64_t i) { return acc_t<T>(alpha) * load(in, i); });
  });
}

}  // namespace gradus::cpu
