// Weights: when a unit is gathered, and when it is released (stage 3).
#include "src/parallel/zero.h"

#include <algorithm>
#include <utility>

#include "src/tensor/context.h"

namespace gradus {

void Zero::begin_gather(Unit& u) {
  u.gathered = Tensor(current().device, {u.numel}, u.values.dtype(), Kind::Comm, u.values.storage().name());
  u.gather = comm_.all_gather(u.own_values, u.gathered);
  int64_t bytes = 0;
  for (const Unit& other : units_) bytes += other.in_memory() ? other.values.bytes() : 0;
  most_gathered_ = std::max(most_gathered_, bytes);
}

// Called when a weight of a unit is read that is not in memory. The unit before it is no longer needed.
void Zero::gather(Unit& u) {
  // BEGIN SOLUTION 18.5
  for (Unit& other : units_)
    if (&other != &u && !other.name.empty() && !args_.keep_gathered) release(other);
  if (!u.gather) begin_gather(u);
  std::exchange(u.gather, nullptr)->wait();
  u.values.storage().refill(std::exchange(u.gathered, {}).storage());
  // STUB: todo("18.5", "give up the unit before, and fill this one's values with all ranks' parts", u);
  // END SOLUTION 18.5
  if (args_.overlap && !u.name.empty()) prefetch_after(u);
}

// A forward pass begins with the first unit and goes up; a backward pass goes down.
void Zero::prefetch_after(const Unit& u) {
  std::vector<Unit*> blocks;
  for (Unit& other : units_)
    if (!other.name.empty()) blocks.push_back(&other);
  const ptrdiff_t at = std::find(blocks.begin(), blocks.end(), &u) - blocks.begin();
  const bool up = last_ ? last_ != &u && at > 0 && blocks[size_t(at - 1)] == last_ : at == 0;
  last_ = &u;
  const ptrdiff_t next = at + (up ? 1 : -1);
  if (next < 0 || next >= ptrdiff_t(blocks.size()) || blocks[size_t(next)]->in_memory()) return;
  begin_gather(*blocks[size_t(next)]);
}

void Zero::release(Unit& u) {
  if (u.gather) std::exchange(u.gather, nullptr)->wait();
  u.gathered = {};
  if (!u.values.storage().dropped()) u.values.storage().drop("its unit is not gathered");
}

}  // namespace gradus
