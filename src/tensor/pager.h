// Moves tensors to the host's memory when the device has no room, and back when they are used: paged
// optimizer states (Dettmers et al. 2023, "QLoRA", sec. 3). There the GPU driver moves single pages; here
// tensors move in groups that are used together, and every byte is counted.
#pragma once
#include "src/tensor/tensor.h"

namespace gradus {

class Pager {
 public:
  // The device's allocator asks its pagers for room before a request fails.
  Pager(Device& device, Device& host);
  ~Pager();  // tensors that are then on the host are lost
  Pager(const Pager&) = delete;

  // Adds t, which is on the device, to the group of this index; index groups() begins a new group. A group
  // stays on the device while it grows.
  void add(const Tensor& t, size_t group);
  // Brings the group back, if it has tensors. It stays until a different group is used, or until done().
  // Reading a tensor that is on the host also brings its group back; if no group was in use, none is in use
  // afterwards.
  void use(size_t group);
  // Ends a round: the next one begins with group 0, so the last group is needed last.
  void done() { in_use_ = kNone; }

  struct Moved {
    int64_t bytes_out = 0, bytes_in = 0;  // to the host, and back
    double seconds = 0;                   // of both; with allocation on the host, not on the device
  };
  const Moved& moved() const { return moved_; }
  size_t groups() const { return groups_.size(); }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Page {
    Tensor tensor, copy;  // the copy, on the host, is undefined while the tensor is on the device
  };
  using Group = std::vector<Page>;
  bool make_room();
  bool send(Group&);  // false: all of it is on the host already
  void bring(Group&);

  Device &device_, &host_;
  std::list<std::function<bool()>>::iterator asked_;  // its function in make_room
  std::vector<Group> groups_;
  size_t in_use_ = kNone;
  Moved moved_;
};

}  // namespace gradus
