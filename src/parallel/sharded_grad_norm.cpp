#include "src/parallel/sharded_grad_norm.h"

namespace gradus {

Tensor gather_sums(Tensor own, const std::vector<Comm*>& groups) {
  for (Comm* const group : groups) {
    const Tensor all = empty(own, {group->size() * own.numel()}, "sums of all ranks");
    group->all_gather(own, all)->wait();
    own = all;
  }
  return own;
}

ShardedGradNorm::ShardedGradNorm(Parameters& own, std::vector<Comm*> groups)
    : own_(own), groups_(std::move(groups)) {
  check(!groups_.empty(), "sharded norm: no group of ranks");
  check(!*own.shares, "sharded norm: the parameters are divided already");
  for (Parameter& p : own) p.counted = p.shard || groups_[0]->rank() == 0;
  *own.shares = this;
}

ShardedGradNorm::~ShardedGradNorm() {
  for (Parameter& p : own_) p.counted = true;
  *own_.shares = nullptr;
}

void ShardedGradNorm::zero_grad() {
  if (own_.on_zero_grad) own_.on_zero_grad();
  for (Parameter& p : own_) p.leaf.zero();
}

}  // namespace gradus
