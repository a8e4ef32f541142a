// The norm of gradients of which every rank has a part.
#include "src/dist/zero.h"

namespace gradus {

Tensor Zero::sums_of_squares(BufList gradients, int64_t elements) {
  for (const Parameter& p : shards) check_gradient(p);
  const Tensor& any = units_[0].gradients;  // of this rank's parts there may be none
  Tensor sum = empty(any, {1}, DType::F64, "squares");
  be(any).sum_squares(ctx(any, cost::sum_squares(elements, any.dtype())), gradients, sum.set());
  if (args_.stage == 0) return sum;  // every rank has all gradients
  Tensor sums = empty(any, {comm_.size()}, DType::F64, "squares");
  comm_.all_gather(sum, sums)->wait();
  return sums;
}

}  // namespace gradus
