#include "src/tensor/pager.h"

#include "src/core/timing.h"

namespace gradus {

Pager::Pager(Device& device, Device& host) : device_(device), host_(host) {
  asked_ =
      device.allocator().make_room.insert(device.allocator().make_room.end(), [this] { return make_room(); });
}

Pager::~Pager() {
  device_.allocator().make_room.erase(asked_);
  for (Group& group : groups_)
    for (Page& page : group) page.tensor.storage().on_read = nullptr;
}

void Pager::add(const Tensor& t, size_t group) {
  check(group <= groups_.size(), "pager: group ", group, " of ", groups_.size(),
        "; groups are added one by one");
  check(!t.storage().on_read, "pager: '", t.storage().name(), "' is in a group already");
  if (group == groups_.size()) groups_.emplace_back();
  use(group);
  groups_[group].push_back({t, {}});
  t.storage().on_read = [this, group] {
    const bool idle = in_use_ == kNone;
    use(group);
    if (idle) done();
  };
}

void Pager::use(size_t group) {
  in_use_ = group;
  if (group >= groups_.size()) return;
  try {
    bring(groups_[group]);
  } catch (...) {  // no memory: tensors that did come back may leave again
    done();
    throw;
  }
}

// Groups are used in order, round after round, so the group before the current one is needed last.
bool Pager::make_room() {
  const size_t count = groups_.size(), present = in_use_ == kNone ? 0 : in_use_;
  for (size_t back = 1; back <= count; ++back) {
    const size_t g = (present + count - back) % count;
    if (g != in_use_ && send(groups_[g])) return true;
  }
  return false;
}

bool Pager::send(Group& group) {
  const int64_t before = moved_.bytes_out;
  const double start = seconds_now();
  for (Page& page : group) {
    if (page.copy.defined()) continue;
    const Tensor& t = page.tensor;
    Tensor copy(host_, t.shape(), t.dtype(), t.storage().kind(), t.storage().name());
    if (host_.has_data()) device_.copy_out(copy.set().p, t.in().p, t.bytes());
    page.copy = copy;
    t.storage().drop("it is on the host, and its pager has ended");
    moved_.bytes_out += t.bytes();
  }
  moved_.seconds += seconds_now() - start;
  return moved_.bytes_out > before;
}

void Pager::bring(Group& group) {
  for (Page& page : group) {
    if (!page.copy.defined()) continue;
    const Tensor& t = page.tensor;
    Tensor back(device_, t.shape(), t.dtype(), page.copy.storage().kind(), page.copy.storage().name());
    const double start = seconds_now();  // without the time to make room, which send() counts
    if (host_.has_data()) device_.copy_in(back.set().p, page.copy.in().p, t.bytes());
    moved_.seconds += seconds_now() - start;
    page.copy = {};
    page.tensor.storage().refill(back.storage());
    moved_.bytes_in += t.bytes();
  }
}

}  // namespace gradus
