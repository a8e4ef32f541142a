#include "kernels/cpu/io.h"

namespace gradus::cpu {

void swiglu_fwd(const Ctx&, RowShape s, CBuf x, Out y) {
  check_dtype("swiglu_fwd", x.t, {{"y", y}});
  visit_out("swiglu_fwd", y, [&]<class T, Write W>() {
    using A = acc_t<T>;
    for_rows(s, [&](int64_t r) {
      const T* gate = x.as<T>() + r * 2 * s.cols;
      map_piece<W>(
          0, s.cols, y.as<T>() + r * s.cols, [](A g, A v) { return g / (A(1) + vexp(-g)) * v; }, gate,
          gate + s.cols);
    });
  });
}

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void swiglu_bwd_row(int64_t cols, const T* gate, const T* value,
                                                           const T* dy, T* dgate, T* dvalue) {
  using A = acc_t<T>;
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    const A g = load(gate, c), s = A(1) / (A(1) + vexp(-g)), silu = g * s, d = load(dy, c);
    store<W>(dgate, c, d * load(value, c) * mul_add(silu, A(1) - s, s));
    store<W>(dvalue, c, d * silu);
  }
}

void swiglu_bwd(const Ctx&, RowShape s, CBuf x, CBuf dy, Out dx) {
  check_dtype("swiglu_bwd", x.t, {{"dy", dy}, {"dx", dx}});
  visit_out("swiglu_bwd", dx, [&]<class T, Write W>() {
    for_rows({s.rows, 2 * s.cols}, [&](int64_t r) {
      const T* gate = x.as<T>() + r * 2 * s.cols;
      T* dgate = dx.as<T>() + r * 2 * s.cols;
      swiglu_bwd_row<W>(s.cols, gate, gate + s.cols, dy.as<T>() + r * s.cols, dgate, dgate + s.cols);
    });
  });
}

}  // namespace gradus::cpu
