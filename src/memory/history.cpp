#include "src/memory/history.h"

#include <utility>

#include "src/core/timing.h"
#include "src/memory/allocator.h"

namespace gradus {

const char* name_of(Action action) {
  static constexpr const char* kNames[] = {"alloc",        "free",        "kind",          "segment_alloc",
                                           "segment_free", "segment_map", "segment_unmap", "oom"};
  return kNames[int(action)];
}

static std::string path_of(const NamedRange* range) {
  if (!range) return "";
  return range->outer ? path_of(range->outer) + "/" + range->name : range->name;
}

void Allocator::keep_history() {
  check(!keeps_history_, "keep_history: a history is being kept already");
  keeps_history_ = true;
  history_begin_ = seconds_now();
  const NamedRange before{"before the history", nullptr};
  const NamedRange* const now = std::exchange(range, &before);
  for (const auto& [serial, segment] : segments_) {
    if (segment.page == 0) note(Action::SegmentAlloc, segment.base, segment.bytes);
    for (const Block* b = segment.first; b; b = b->next) {
      if (segment.page > 0 && b->mapped) note(Action::SegmentMap, segment.base + b->offset, b->size);
      if (!b->free) note(Action::Alloc, *b);
    }
  }
  range = now;
}

const std::vector<MemoryEvent>& Allocator::history() const {
  check(keeps_history_, "memory history: none is kept; call keep_history() before what is to be seen");
  return history_;
}

void Allocator::note(Action action, const Block& b) {
  if (!keeps_history_) return;
  history_.push_back({action, reinterpret_cast<int64_t>(b.segment->base) + b.offset, b.size, b.requested,
                      b.kind, b.name, path_of(range), b.shape, seconds_now() - history_begin_});
}

void Allocator::note(Action action, const char* address, int64_t bytes) {
  if (!keeps_history_) return;
  history_.push_back({action, reinterpret_cast<int64_t>(address), bytes, 0, Kind::Other, "", path_of(range),
                      Shape(), seconds_now() - history_begin_});
}

void Allocator::note_out_of_memory(int64_t bytes, Kind kind, std::string_view name, const Shape& shape) {
  if (!keeps_history_) return;
  const int64_t left = budget_ > 0 ? budget_ - meter_.reserved() : 0;
  history_.push_back({Action::OutOfMemory, 0, left, bytes, kind, std::string(name), path_of(range), shape,
                      seconds_now() - history_begin_});
}

}  // namespace gradus
