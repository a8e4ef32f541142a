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

void cast_columns(const Ctx&, RowShape s, int64_t x_row, CBuf x, int64_t y_row, Out y) {
  visit_float("cast_columns", x.t, [&]<class X>() {
    visit_out("cast_columns", y, [&]<class Y, Write W>() {
      for_rows(s, [&](int64_t r) { copy_row<W>(s.cols, x.as<X>() + r * x_row, y.as<Y>() + r * y_row); });
    });
  });
}

}  // namespace gradus::cpu
