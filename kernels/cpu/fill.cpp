#include "kernels/cpu/io.h"

namespace gradus::cpu {

void fill(const Ctx&, int64_t n, Out y, double value) {
  visit_float("fill", y.t, [&]<class T>() { map_as<T>(n, y, [=](int64_t) { return acc_t<T>(value); }); });
}

}  // namespace gradus::cpu
