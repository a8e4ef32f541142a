// linear_quantized: y = x W^T + b, W (out, in) is stored as codes and does not train.   dx = dy W,   db = sum
// of dy over rows. Both passes dequantize W some rows at a time: at most kTile elements (or one row), and a
// span. saves: only the codes, which are alive in any case.
#include "src/nn/lora.h"

namespace gradus {

constexpr int64_t kTile = int64_t(1) << 20;

// Calls f(row, tile) for all rows of W in order; tile: some rows of W from `row` on, dequantized to `dtype`.
template <class F>
static void for_tiles(const DoubleQuantized& w, DType dtype, F f) {
  const int64_t out = w.shape[0], in = w.shape[1], most = std::max<int64_t>(1, kTile / in);
  for (int64_t row = 0; row < out; row += most) {
    const int64_t rows = std::min(most, out - row), begin = row * in / kSpan * kSpan;
    // BEGIN SOLUTION 12.4
    const Tensor span = dequantize(w, begin, (row + rows) * in, dtype);
    f(row, span.narrow(row * in - begin, rows * in).reshape({rows, in}));
    // STUB: todo("12.4", "dequantize these rows of w; their first span begins at `begin`", w, row, rows, in, begin, dtype, f);
    // END SOLUTION 12.4
  }
}

static void linear_quantized_bwd(const DoubleQuantized& w, const Tensor& dy, Grads& dx) {
  if (dx.wanted(0)) {
    const int64_t out = w.shape[0], in = w.shape[1];
    Out to = dx.out(0);
    for_tiles(w, dy.dtype(), [&](int64_t row, const Tensor& tile) {
      const MatmulShape s{
          .M = dy.rows().rows, .N = in, .K = tile.shape()[0], .lda = out, .ldb = in, .ldc = in};
      be(dy).matmul(ctx(dy, cost::matmul(s, dy.dtype())), s, dy.in().from(row), tile.in(), to);
      to.w = Write::Add;  // in 16 bits: a rounding for each tile
    });
  }
  if (dx.wanted(1)) {
    const Out db = dx.out(1);
    run(&Backend::bias_bwd, cost::bias_bwd, dy, dy.in(), db);
  }
}

Tensor linear_quantized(const Tensor& x, const DoubleQuantized& w, const Tensor& bias) {
  const ProfileRange range("linear_quantized");
  check(w.shape.rank() == 2 && x.shape().rank() >= 1 && x.last() == w.shape[1], "linear_quantized: x is ",
        x.shape(), ", weight is ", w.shape, "; their last dimensions (in) must be equal");
  const int64_t in = x.last(), out = w.shape[0];
  check(!bias.defined() || bias.shape() == Shape{out}, "linear_quantized: weight is ", w.shape, ", bias is ",
        bias.shape(), "; it must be [", out, "]");
  Tensor y = empty(x, x.shape().with_last(out), "linear_quantized");
  if (bias.defined()) run(&Backend::bias_fwd, cost::bias_fwd, y, {}, bias.in(), y.set());
  for_tiles(w, x.dtype(), [&](int64_t row, const Tensor& tile) {
    const int64_t rows = tile.shape()[0];
    const MatmulShape s{
        .M = y.rows().rows, .N = rows, .K = in, .tb = Trans::Yes, .lda = in, .ldb = in, .ldc = out};
    be(x).matmul(ctx(x, cost::matmul(s, x.dtype())), s, x.in(), tile.in(),
                 y.out(bias.defined() ? Write::Add : Write::Set).from(row));
  });
  return record("linear_quantized", {x, bias},
                {{w.codes}, {w.scale_codes}, {w.scale_scales}, {w.nf4}, {w.dynamic}}, y,
                [shape = w.shape, mean = w.mean](const Node& n, const Tensor& dy, Grads& dx) {
                  const auto& s = n.saved;
                  const DoubleQuantized saved{.shape = shape,
                                              .mean = mean,
                                              .codes = s[0].tensor,
                                              .scale_codes = s[1].tensor,
                                              .scale_scales = s[2].tensor,
                                              .nf4 = s[3].tensor,
                                              .dynamic = s[4].tensor};
                  linear_quantized_bwd(saved, dy, dx);
                });
}

}  // namespace gradus
