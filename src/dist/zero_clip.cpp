// The norm of gradients of which every rank has a part.
#include "src/dist/zero.h"

namespace gradus {

Tensor Zero::sums_of_squares(const Tensor& own) {
  for (const Parameter& p : shards) check_gradient(p);
  if (args_.stage == 0) return own;  // every rank has all gradients
  Tensor sums = empty(own, {comm_.size()}, DType::F64, "squares");
  comm_.all_gather(own, sums)->wait();
  return sums;
}

}  // namespace gradus
