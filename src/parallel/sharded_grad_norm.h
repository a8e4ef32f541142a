// Parameters of which each rank has a part of its own (Parameter::shard), or a copy.
#pragma once
#include <vector>

#include "src/nn/parameter.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// Sums that add up to those of all ranks of some groups, from this rank's: over one group after the other, so
// in the same order on all of them.
Tensor gather_sums(Tensor own, const std::vector<Comm*>& groups);

// While it lives, the norm in an optimizer's clip_grad_norm() is that of all ranks of `groups`, and the call
// is collective. A parameter that is no shard is a copy, the same on all ranks of the first group, whose
// first rank counts it. Whoever has other copies sets Parameter::counted after this is made.
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
