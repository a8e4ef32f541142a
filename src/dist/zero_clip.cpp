// The norm of gradients of which every rank has a part.
#include "src/dist/zero.h"
#include "src/optim/optimizer.h"

namespace gradus {

void Zero::clip_grad_norm(double max_norm) {
  if (args_.stage == 0) return gradus::clip_grad_norm(shards, max_norm);
  for (const Parameter& p : shards) check_gradient(p);
  const GradientList gradients = gradients_of(shards);
  const Tensor& any = shards.begin()->value;
  Tensor sum = empty(any, {1}, DType::F64, "squares"),
         sums = empty(any, {comm_.size()}, DType::F64, "squares");
  be(any).sum_squares(ctx(any, cost::sum_squares(gradients.elements, gradients.items[0].t)), gradients.list(),
                      sum.set());
  comm_.all_gather(sum, sums)->wait();
  be(any).clip_factor(ctx(any, cost::clip_factor(comm_.size())), comm_.size(), sums.in(), float(max_norm));
  any.device().norm_asked = true;
}

}  // namespace gradus
