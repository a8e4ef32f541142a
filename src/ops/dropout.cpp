// dropout: y = mask x / (1-p), mask ~ Bernoulli(1-p).   dx = mask dy / (1-p).   saves nothing: the mask is
// Philox(seed, step, ordinal of this op in the forward pass, sample, element); backward draws it again.
#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

Tensor dropout(const Tensor& x, double p, int64_t first_element) {
  const ProfileRange range("dropout");
  check(p >= 0 && p < 1, "dropout: p is ", p, "; it must be at least 0 and below 1");
  check(first_element >= 0, "dropout: the first element is ", first_element, "; they count from 0");
  if (p == 0 || current().evaluates()) return x;
  check(x.shape().rank() >= 2, "dropout: x is ", x.shape(), "; its first dimension must count the samples");
  const RowShape samples{x.shape()[0], x.numel() / std::max<int64_t>(x.shape()[0], 1)};
  const RandomKey key = current().next_dropout_key(first_element);
  Tensor y = empty_like(x, "dropout");
  be(x).dropout(ctx(x, cost::dropout(samples, x.dtype())), samples, x.in(), y.set(), float(p), key);
  return record("dropout", {x}, {}, y, [=](const Node&, const Tensor& dy, Grads& dx) {
    be(dy).dropout(ctx(dy, cost::dropout(samples, dy.dtype())), samples, dy.in(), dx.out(0), float(p), key);
  });
}

}  // namespace gradus
