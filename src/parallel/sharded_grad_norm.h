// The gradient norm when each rank has either a shard (Parameter::shard) or a copy of each parameter.
#pragma once
#include <vector>

#include "src/nn/parameter.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// From this rank's sums, returns sums that add up to those of all ranks of the groups: gathered over one
// group after the other, so in the same order on all ranks.
Tensor gather_sums(Tensor own, const std::vector<Comm*>& groups);

// While this lives, the norm in an optimizer's clip_grad_norm() is that of all ranks of `groups`, and the
// call is collective. A parameter that is not a shard is a copy, the same on all ranks of the first group,
// whose first rank counts it. For other copies, set Parameter::counted after construction.
class ShardedGradNorm : private RankShares {
 public:
  ShardedGradNorm(Parameters& own, std::vector<Comm*> groups);
  ~ShardedGradNorm();
  ShardedGradNorm(const ShardedGradNorm&) = delete;

 private:
  const Parameters& own_parts() const override { return own_; }
  void zero_grad() override;
  Tensor sums_of_squares(const Tensor& own) override { return gather_sums(own, groups_); }
  void updated() override {}
  bool sums_gradients() const override { return false; }

  Parameters& own_;
  std::vector<Comm*> groups_;
};

}  // namespace gradus
