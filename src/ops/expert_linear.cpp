// expert_linear: y[e] = x[e] W[e]^T, x (E, ..., in), W (E, out, in).   dx[e] = dy[e] W[e],   dW[e] = dy[e]^T
// x[e].   saves: x only if W trains, W only if x wants a gradient.
#include "src/ops/ops.h"

namespace gradus {

// One product for each expert; A, B and C are dense.
static MatmulShape products(int64_t experts, int64_t M, int64_t N, int64_t K, Trans ta, Trans tb) {
  return {.M = M,
          .N = N,
          .K = K,
          .ta = ta,
          .tb = tb,
          .lda = ta == Trans::Yes ? M : K,
          .ldb = tb == Trans::Yes ? K : N,
          .ldc = N,
          .batch = {{.count = experts, .stride_a = M * K, .stride_b = K * N, .stride_c = M * N}}};
}

Tensor expert_linear(const Tensor& x, const Tensor& weight) {
  const ProfileRange range("expert_linear");
  check(weight.shape().rank() == 3 && x.shape().rank() >= 2 && x.shape()[0] == weight.shape()[0] &&
            x.last() == weight.last(),
        "expert_linear: x is ", x.shape(), ", weight is ", weight.shape(),
        "; their first dimensions (experts) and their last ones (in) must be equal");
  const int64_t experts = x.shape()[0], out = weight.shape()[1], in = x.last();
  Tensor y = empty(x, x.shape().with_last(out), "expert_linear");
  const int64_t rows = x.rows().rows / std::max<int64_t>(experts, 1);
  const CBuf w = weight.in();  // may gather the layer, as in linear.cpp
  const MatmulShape s = products(experts, rows, out, in, Trans::No, Trans::Yes);
  be(x).matmul(ctx(x, cost::matmul(s, x.dtype())), s, x.in(), w, y.set());
  return record("expert_linear", {x, weight}, {{x, needed_by(weight)}, {weight, needed_by(x)}}, y,
                [experts, rows, out, in](const Node& n, const Tensor& dy, Grads& dx) {
                  if (dx.wanted(0)) {
                    const MatmulShape s = products(experts, rows, in, out, Trans::No, Trans::No);
                    const Out to = dx.out(0);
                    const CBuf w = n.saved[1].in();  // may gather the layer
                    be(dy).matmul(ctx(dy, cost::matmul(s, dy.dtype())), s, dy.in(), w, to);
                  }
                  if (dx.wanted(1)) {
                    const MatmulShape s = products(experts, out, in, rows, Trans::Yes, Trans::No);
                    const Out to = dx.out(1);
                    be(dy).matmul(ctx(dy, cost::matmul(s, dy.dtype())), s, dy.in(), n.saved[0].in(), to);
                  }
                });
}

}  // namespace gradus
