// linear: y = x W^T + b, W (out, in).   dx = dy W,   dW = dy^T x,   db = sum of dy over rows.
// saves: x only if W trains, W only if x wants a gradient.
#include "src/ops/ops.h"

namespace gradus {

static void linear_bwd(const Node& n, const Tensor& dy, Grads& dx) {
  const int64_t out = dy.last(), rows = dy.rows().rows, in = n.inputs[0].shape[-1];
  if (dx.wanted(0)) {
    const MatmulShape s{.M = rows, .N = in, .K = out, .lda = out, .ldb = in, .ldc = in};
    const Out to = dx.out(0);
    const CBuf w = n.saved[1].in();  // may gather the layer
    be(dy).matmul(ctx(dy, cost::matmul(s, dy.dtype())), s, dy.in(), w, to);
  }
  if (dx.wanted(1)) {
    MatmulShape s{};
    s.lda = out, s.ldb = in, s.ldc = in;  // the lengths of the stored rows of dy, x and dW
    // BEGIN SOLUTION 02.5
    s.M = out, s.N = in, s.K = rows, s.ta = Trans::Yes;
    be(dy).matmul(ctx(dy, cost::matmul(s, dy.dtype())), s, dy.in(), n.saved[0].in(), dx.out(1));
    // STUB: todo("02.5", "one product that gives dW, of shape (out, in)", rows, s);
    // END SOLUTION 02.5
  }
  if (dx.wanted(2)) {
    const Out db = dx.out(2);
    run(&Backend::bias_bwd, cost::bias_bwd, dy, dy.in(), db);
  }
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const ProfileRange range("linear");
  check(weight.shape().rank() == 2 && x.shape().rank() >= 1 && x.last() == weight.last(), "linear: x is ",
        x.shape(), ", weight is ", weight.shape(), "; their last dimensions (in) must be equal");
  const int64_t in = x.last(), out = weight.shape()[0];
  check(!bias.defined() || bias.shape() == Shape{out}, "linear: weight is ", weight.shape(), ", bias is ",
        bias.defined() ? bias.shape() : Shape(), "; it must be [", out, "]");
  Tensor y = empty(x, x.shape().with_last(out), "linear");
  // If the layer is sharded, reading it gathers it, so all ranks must be here together: src/README.md.
  const CBuf w = weight.in(), b = in_or_none(bias);
  if (bias.defined())  // the product is added to it: cheaper than a second pass that adds the bias
    run(&Backend::bias_fwd, cost::bias_fwd, y, {}, b, y.set());
  const MatmulShape s{
      .M = y.rows().rows, .N = out, .K = in, .tb = Trans::Yes, .lda = in, .ldb = in, .ldc = out};
  be(x).matmul(ctx(x, cost::matmul(s, x.dtype())), s, x.in(), w, bias.defined() ? y.add() : y.set());
  return record("linear", {x, weight, bias}, {{x, needed_by(weight)}, {weight, needed_by(x)}}, y, linear_bwd);
}

}  // namespace gradus
