// The norm of gradients of which every rank has a part.
#include "src/dist/zero.h"
#include "src/optim/optimizer.h"

namespace gradus {

void Zero::clip_grad_norm(double max_norm) {
  if (args_.stage == 0) return gradus::clip_grad_norm(shards, max_norm);
  std::vector<CBuf> gradients;
  std::vector<int64_t> sizes;
  int64_t elements = 0;
  for (Parameter& p : shards) {
    check_gradient(p);
    gradients.push_back(p.leaf.grad.in());
    sizes.push_back(p.value.numel());
    elements += sizes.back();
  }
  const Tensor& any = shards.begin()->value;
  Tensor sum = empty(any, {1}, DType::F64, "squares"),
         sums = empty(any, {comm_.size()}, DType::F64, "squares");
  be(any).sum_squares(ctx(any, cost::sum_squares(elements, gradients[0].t)),
                      {int64_t(sizes.size()), gradients.data(), sizes.data()}, sum.set());
  comm_.all_gather(sum, sums)->wait();
  be(any).clip_factor(ctx(any, cost::clip_factor(comm_.size())), comm_.size(), sums.in(), float(max_norm));
  any.device().norm_asked = true;
}

}  // namespace gradus
