// cross_entropy: loss = 1/R sum_r (lse[r] - logits[r, target[r]]), lse = log sum exp, over the R rows whose
// target is not -1 (padding). dlogits = dloss/R (softmax(logits) - onehot(target)).   saves: logits, targets,
// lse. With `count`, R is the number in that tensor: the loss of a micro-batch is then its share of the mean
// over all targets of the batch, and the shares add up to this mean.
// The logits are the largest tensor of a language model; backward overwrites them with their gradient, unless
// something else still refers to them: a parameter, another op's saved tensors, a variable.
#include "src/ops/ops.h"

namespace gradus {

void cross_entropy_op_bwd(const Node& n, const Tensor& dloss, Grads& dx) {
  Tensor logits = unshared(n.saved[0].tensor);
  be(dloss).cross_entropy_bwd_inplace(
      ctx(logits, cost::cross_entropy_bwd_inplace(logits.rows(), logits.dtype())), logits.rows(),
      n.saved[1].in(), in_or_none(n.saved[3].tensor), n.saved[2].in(), dloss.in(), logits.set());
  logits.storage().set_kind(Kind::Temporary);
  dx.pass(0, logits);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& count) {
  const ProfileRange range("cross_entropy");
  check(logits.shape().rank() >= 1 && logits.last() > 0 && targets.numel() == logits.rows().rows &&
            targets.numel() > 0 && targets.dtype() == DType::I32,
        "cross_entropy: logits are ", logits.shape(), ", targets are ", targets.shape(), " ",
        name_of(targets.dtype()), "; give one int32 target for each row of logits, and at least one row");
  const DType stats = statistics_dtype(logits.dtype());
  check(!count.defined() || (count.numel() == 1 && count.dtype() == stats), "cross_entropy: count is ",
        count.shape(), " ", name_of(count.dtype()), "; it is one number in ", name_of(stats),
        ", how many targets of the batch count");
  Tensor loss = empty(logits, {}, stats, "loss"),
         lse = empty(logits, targets.shape(), stats, "cross_entropy.lse");
  be(logits).cross_entropy_fwd(ctx(logits, cost::cross_entropy_fwd(logits.rows(), logits.dtype())),
                               logits.rows(), logits.in(), targets.in(), in_or_none(count), loss.set(),
                               lse.set());
  return record("cross_entropy", {logits},
                {{logits, needed_by(logits)},
                 {targets, needed_by(logits)},
                 {lse, needed_by(logits)},
                 {count, needed_by(logits)}},
                loss, cross_entropy_op_bwd);
}

}  // namespace gradus
