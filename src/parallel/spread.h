// Parameters of which each rank has a part of its own (Parameter::shard), or a copy.
#pragma once
#include <vector>

#include "src/nn/parameter.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// Sums that add up to those of all ranks of some groups, from this rank's: over one group after the other, so
// in the same order on all of them.
Tensor gather_sums(Tensor own, const std::vector<Comm*>& groups);

// While it lives, the norm of an optimizer's gradients is that of all ranks of `groups`: clip_grad_norm() is
// collective. What is no shard is a copy, the same on all ranks of the first group, and its first rank counts
// it; of other copies, Parameter::counted is for the program to say.
class Spread : private RankShares {
 public:
  Spread(Parameters& own, std::vector<Comm*> groups);
  ~Spread();
  Spread(const Spread&) = delete;

 private:
  const Parameters& own_parts() const override { return own_; }
  void zero_grad() override;
  Tensor sums_of_squares(const Tensor& own) override { return gather_sums(own, groups_); }
  void updated() override {}

  Parameters& own_;
  std::vector<Comm*> groups_;
};

}  // namespace gradus
