// The angles are computed in fp64: in fp32, t base^(-2i/dims) has an error of up to 1e-4 at t = 2048.
#include "kernels/cpu/io.h"

namespace gradus::cpu {

// Row t of the table: dims/2 cosines, then dims/2 sines.
template <class A>
static void fill_angles(const RotaryShape& s, A* table) {
  const int64_t h = s.dims / 2;
  parallel_for(s.T, 256 / std::max<int64_t>(h, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t i = 0; i < h; ++i) {
        const double angle = double(s.first + t) * std::pow(s.base, -2.0 * double(i) / double(s.dims));
        table[t * s.dims + i] = A(std::cos(angle));
        table[t * s.dims + h + i] = A(std::sin(s.inverse ? -angle : angle));
      }
  });
}

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void turn_head(int64_t h, const acc_t<T>* cosine, const acc_t<T>* sine,
                                                      const T* x, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < h; ++i) {
    const acc_t<T> a = load(x, i), b = load(x, i + h);
    store<W>(y, i, a * cosine[i] - b * sine[i]);
    store<W>(y, i + h, b * cosine[i] + a * sine[i]);
  }
}

void rotary(const Ctx& ctx, const RotaryShape& s, CBuf x, Out y) {
  check_rotary(s, x, y);
  const int64_t turned = (s.H + s.KV) * s.D, width = turned + s.KV * s.D, h = s.dims / 2;
  visit_out("rotary", y, [&]<class T, Write W>() {
    auto* table = static_cast<acc_t<T>*>(ctx.scratch);
    fill_angles(s, table);
    for_rows({s.B * s.T, width}, [&](int64_t r) {
      const T* from = x.as<T>() + r * width;
      T* to = y.as<T>() + r * width;
      const acc_t<T>* cosine = table + r % s.T * s.dims;
      for (int64_t at = 0; at < turned; at += s.D) {  // the heads of q, then those of k
        turn_head<W>(h, cosine, cosine + h, from + at, to + at);
        copy_row<W>(s.D - s.dims, from + at + s.dims, to + at + s.dims);
      }
      copy_row<W>(width - turned, from + turned, to + turned);
    });
  });
}

}  // namespace gradus::cpu
