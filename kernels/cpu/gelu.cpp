#include "kernels/cpu/gelu.h"

#include "kernels/cpu/io.h"

namespace gradus::cpu {

void gelu_fwd(const Ctx&, int64_t n, CBuf x, Out y) { map("gelu_fwd", n, y, {{"x", x}}, kGelu); }

void gelu_bwd(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx) {
  map("gelu_bwd", n, dx, {{"x", x}, {"dy", dy}}, kGeluBwd);
}

void bias_gelu_fwd(const Ctx&, RowShape s, CBuf x, CBuf b, Out y) {
  check_dtype("bias_gelu_fwd", b.t, {{"x", x}, {"y", y}});
  visit_out("bias_gelu_fwd", y, [&]<class T, Write W>() {
    using A = acc_t<T>;
    for_rows(s, [&](int64_t r) {
      const int64_t row = r * s.cols;
      map_piece<W>(
          0, s.cols, y.as<T>() + row, [](A x, A b) { return kGelu(x + b); }, x.as<T>() + row, b.as<T>());
    });
  });
}

template <class T>
[[gnu::flatten, gnu::noinline]] static void bias_gelu_bwd_piece(int64_t cols, const T* x, const T* b,
                                                                const T* dy, acc_t<T>* dx) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) dx[c] = kGeluBwd(load(x, c) + load(b, c), load(dy, c));
}

// As in bias_bwd: sums over partitions of the rows, which are then added in order.
void bias_gelu_bwd(const Ctx& ctx, RowShape s, CBuf x, CBuf b, CBuf dy, Out dx, Out db) {
  constexpr const char* op = "bias_gelu_bwd";
  check_bias_gelu_bwd(x, b, dy, dx, db);
  visit_float(op, x.t, [&]<class T>() {
    using A = acc_t<T>;
    const int64_t P = cost::partitions(s.rows);
    A *partial = static_cast<A*>(ctx.scratch), *sums = partial + P * s.cols;
    for_partitions(s, [&](int64_t p, int64_t begin, int64_t end) {
      A piece[kChunk], *const sum = partial + p * s.cols;
      std::fill_n(sum, s.cols, A(0));
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < s.cols; c += kChunk) {
          const int64_t n = std::min(kChunk, s.cols - c), at = r * s.cols + c;
          bias_gelu_bwd_piece(n, x.as<T>() + at, b.as<T>() + c, dy.as<T>() + at, piece);
          write(op, n, piece, dx, at);
          add_row(n, piece, sum + c);
        }
    });
    sum_partitions(P, s.cols, partial, sums);
    write(op, s.cols, sums, db, 0);
  });
}

}  // namespace gradus::cpu
