#include "kernels/cpu/io.h"

namespace gradus::cpu {

void add(const Ctx&, int64_t n, CBuf a, CBuf b, Out y) {
  check_dtype("add", y.t, {{"a", a}, {"b", b}});
  visit_float("add", y.t, [&]<class T>() {
    const T *pa = a.as<T>(), *pb = b.as<T>();
    map<T>(n, y, [=](int64_t i) { return load(pa, i) + load(pb, i); });
  });
}

}  // namespace gradus::cpu
