// linear_cross_entropy: cross_entropy(linear(x, weight), targets, count), x (..., C), weight (V, C), without
// storing all logits. The op computes the logits of `rows` rows, their share of the loss, their gradient in
// place, and their shares of dx and dweight, before the next rows reuse the memory. So the gradients are
// computed in the forward pass, for the dloss with which a backward pass begins; backward multiplies them by
// the ratio of its dloss to that, mostly 1. (Hsu et al. 2024, "Liger Kernel", section 3.2.) saves: dx,
// dweight and one number. dweight uses the memory of the parameter's gradient if zero_grad() came before
// this; else it takes as much memory again.
#include "src/ops/ops.h"

namespace gradus {

static void linear_cross_entropy_bwd(const Node& n, const Tensor& dloss, Grads& dx) {
  for (const int input : {0, 1}) {
    if (!dx.wanted(input)) continue;
    Tensor gradient = n.saved[input].tensor;
    run(&Backend::scale_by_ratio_inplace, cost::scale_by_ratio_inplace, gradient, dloss.in(), n.saved[2].in(),
        gradient.set());
    if (gradient.storage().kind() == Kind::Activation) gradient.storage().set_kind(Kind::Temporary);
    dx.pass(input, gradient);
  }
}

// x as a matrix (rows, C), without a gradient.
static Tensor as_matrix(const Tensor& x) { return x.detach().reshape({x.rows().rows, x.rows().cols}); }

static void multiply(const MatmulShape& s, const Tensor& a, CBuf b, Out c) {
  be(a).matmul(ctx(a, cost::matmul(s, a.dtype())), s, a.in(), b, c);
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets, const Tensor& count,
                            int64_t rows) {
  const ProfileRange range("linear_cross_entropy");
  check(weight.shape().rank() == 2 && x.shape().rank() >= 1 && x.last() == weight.last(),
        "linear_cross_entropy: x is ", x.shape(), ", weight is ", weight.shape(),
        "; their last dimensions must be equal");
  const int64_t N = x.rows().rows, C = x.last(), V = weight.shape()[0];
  check(N > 0 && V > 0 && targets.numel() == N && targets.dtype() == DType::I32,
        "linear_cross_entropy: x is ", x.shape(), ", weight is ", weight.shape(), ", targets are ",
        targets.shape(), " ", name_of(targets.dtype()),
        "; give one int32 target for each row of x, and at least one row and class");
  check(rows > 0, "linear_cross_entropy: ", rows, " rows at a time; it takes at least 1");
  const DType stats = statistics_dtype(x.dtype());
  check(!count.defined() || (count.numel() == 1 && count.dtype() == stats), "linear_cross_entropy: count is ",
        count.shape(), " ", name_of(count.dtype()), "; it is one number in ", name_of(stats),
        ", how many targets of the batch count");
  const bool records = current().tape() != nullptr;
  Tensor dx, dweight;
  if (records && x.slot.wanted()) dx = Tensor(x.device(), {N, C}, x.dtype(), Kind::Temporary, "linear.dx");
  if (records && weight.slot.wanted()) dweight = early_gradient(weight);
  Tensor loss = empty(x, {}, stats, "loss"), dloss = empty(x, {}, stats, "dloss"), total = count;
  if (!count.defined()) {
    total = empty(x, {}, stats, "count");
    be(x).count_targets(ctx(x, cost::count_targets(N)), N, targets.in(), total.set());
  }
  be(x).loss_scale(ctx(x, cost::fill(1, stats)), dloss.set());
  Tensor logits = empty(x, {std::min(rows, N), V}, "logits"),
         lse = empty(x, {std::min(rows, N)}, stats, "cross_entropy.lse");
  const CBuf w = weight.in();
  for (int64_t first = 0; first < N; first += rows) {
    const int64_t n = std::min(rows, N - first);
    const Tensor x_n = as_matrix(x).narrow(first, n), t_n = targets.reshape({N}).narrow(first, n);
    Tensor logits_n = logits.narrow(0, n);
    const RowShape s = logits_n.rows();
    multiply({.M = n, .N = V, .K = C, .tb = Trans::Yes, .lda = C, .ldb = C, .ldc = V}, x_n, w,
             logits_n.set());
    be(x).cross_entropy_fwd(ctx(x, cost::cross_entropy_fwd(s, x.dtype())), s, logits_n.in(), t_n.in(),
                            total.in(), first == 0 ? loss.set() : loss.add(), lse.set());
    if (!dx.defined() && !dweight.defined()) continue;
    be(x).cross_entropy_bwd_inplace(ctx(x, cost::cross_entropy_bwd_inplace(s, x.dtype())), s, t_n.in(),
                                    total.in(), lse.in(), dloss.in(), logits_n.set());
    const MatmulShape of_dx{.M = n, .N = C, .K = V, .lda = V, .ldb = C, .ldc = C},
        of_dweight{.M = V, .N = C, .K = n, .ta = Trans::Yes, .lda = V, .ldb = C, .ldc = C};
    // BEGIN SOLUTION 16.2
    if (dx.defined()) multiply(of_dx, logits_n, w, dx.narrow(first, n).set());
    if (dweight.defined())
      multiply(of_dweight, logits_n, x_n.in(), first == 0 ? dweight.set() : dweight.add());
    // STUB: todo("16.2", "what these rows add to dx and dweight", of_dx, of_dweight, logits_n, x_n);
    // END SOLUTION 16.2
  }
  return record("linear_cross_entropy", {x, weight},
                {{dx, needed_by(x)}, {dweight, needed_by(weight)}, {dloss, needed_by(x, weight)}}, loss,
                linear_cross_entropy_bwd);
}

}  // namespace gradus
