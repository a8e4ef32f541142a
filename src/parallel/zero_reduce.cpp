// Gradients: their sums over the ranks, each part at its owner, and their norm.
#include "src/parallel/sharded_grad_norm.h"
#include "src/parallel/zero.h"
#include "src/tensor/call.h"

#include <utility>

namespace gradus {

// Sums begin in the order of the units in a backward pass, the same on all ranks, because the order in which
// gradients become final may differ between ranks.
void Zero::begin_reduce(Unit& u) {
  for (const Parameter* p : u.parameters) check_gradient(*p);
  u.reduce = args_.stage == 0 ? comm_.all_reduce(u.gradients)
                              : comm_.reduce_scatter(u.gradients, own(u, u.gradients));
  reducing_.push_back(&u);
  // From stage 2 on, a unit's gradients take memory until they are summed: at most two units at a time.
  const size_t most = !args_.overlap ? 0 : args_.stage >= 2 ? 1 : units_.size();
  while (reducing_.size() > most) finish_reduce(*reducing_.front());
}

void Zero::finish_reduce(Unit& u) {
  std::exchange(u.reduce, nullptr)->wait();
  reducing_.pop_front();
  for (const OwnPart& s : u.shards) s.own->leaf.written = true;
  if (args_.stage < 2) return;
  const Tensor sum = own(u, u.gradients);
  cast(sum, u.own_gradients.out(u.summed ? Write::Add : Write::Set));
  u.summed = true;
  u.gradients.storage().drop(kNoPass);
  for (Parameter* p : u.parameters) p->leaf.zero();
}

Tensor Zero::sums_of_squares(const Tensor& own) {
  for (const Parameter& p : shards) check_gradient(p);
  std::vector<Comm*> groups = args_.others;
  if (args_.stage > 0) groups.insert(groups.begin(), &comm_);  // else every rank of it has all gradients
  return gather_sums(own, groups);
}

}  // namespace gradus
