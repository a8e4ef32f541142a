#include "src/memory/history.h"

#include <algorithm>
#include <utility>

#include "src/core/timing.h"
#include "src/memory/allocator.h"

namespace gradus {

const char* name_of(Action action) {
  static constexpr const char* kNames[] = {"alloc",        "free",        "kind",          "segment_alloc",
                                           "segment_free", "segment_map", "segment_unmap", "oom"};
  return kNames[int(action)];
}

void MemoryReplay::apply(const MemoryEvent& e) {
  switch (e.action) {
    case Action::Alloc:
      meter.add(e.kind, e.requested, e.bytes);
      alive[e.address] = e;
      break;
    case Action::Free:
      meter.remove(e.kind, e.requested, e.bytes);
      alive.erase(e.address);
      break;
    case Action::ChangeKind:
      meter.move(std::exchange(alive.at(e.address).kind, e.kind), e.kind, e.requested);
      break;
    case Action::SegmentAlloc:
    case Action::SegmentMap: meter.add_segment(e.bytes); break;
    case Action::SegmentFree:
    case Action::SegmentUnmap: meter.remove_segment(e.bytes); break;
    case Action::OutOfMemory: break;
  }
}

size_t peak_event(const std::vector<MemoryEvent>& history) {
  int64_t allocated = 0, highest = -1;
  size_t peak = 0;
  for (size_t i = 0; i < history.size(); ++i) {
    if (history[i].action == Action::Free) allocated -= history[i].bytes;
    if (history[i].action != Action::Alloc) continue;
    allocated += history[i].bytes;
    if (allocated > highest) highest = allocated, peak = i;
  }
  check(highest >= 0, "memory history: it contains no allocation");
  return peak;
}

MemoryPeak memory_peak(const std::vector<MemoryEvent>& history) {
  const size_t peak = peak_event(history);
  MemoryReplay replay;
  for (size_t i = 0; i <= peak; ++i) replay.apply(history[i]);
  MemoryPeak result{replay.meter.now(), history[peak], {}};
  for (auto& [address, block] : replay.alive) result.alive.push_back(std::move(block));
  std::stable_sort(result.alive.begin(), result.alive.end(),
                   [](const auto& a, const auto& b) { return a.requested > b.requested; });
  return result;
}

// The mapped bytes from `b` to the next hole or the end of the segment.
static int64_t mapped_from(const Block* b) {
  int64_t bytes = 0;
  for (; b && b->mapped; b = b->next) bytes += b->size;
  return bytes;
}

void Allocator::keep_history() {
  check(!keeps_history_, "keep_history: the history is being recorded already");
  keeps_history_ = true;
  history_begin_ = seconds_now();
  Ranges before;
  before.begin("before the history");
  const Ranges* const now = std::exchange(ranges_, &before);
  for (const auto& [serial, segment] : segments_) {
    const Action came = segment.page > 0 ? Action::SegmentMap : Action::SegmentAlloc;
    for (const Block* b = segment.first; b; b = b->next) {
      if (b->mapped && !(b->prev && b->prev->mapped)) note(came, segment.base + b->offset, mapped_from(b));
      if (!b->free) note(Action::Alloc, *b);
    }
  }
  ranges_ = now;
  before.end();
}

const std::vector<MemoryEvent>& Allocator::history() const {
  check(keeps_history_, "memory history: not recorded; call keep_history() before the part of interest");
  return history_;
}

void Allocator::note(Action action, const Block& b) {
  if (!keeps_history_) return;
  history_.push_back({action, reinterpret_cast<int64_t>(b.segment->base) + b.offset, b.size, b.requested,
                      b.kind, b.name, range(), b.shape, seconds_now() - history_begin_});
}

void Allocator::note(Action action, const char* address, int64_t bytes) {
  if (!keeps_history_) return;
  history_.push_back({action, reinterpret_cast<int64_t>(address), bytes, 0, Kind::Other, "", range(), Shape(),
                      seconds_now() - history_begin_});
}

void Allocator::note_out_of_memory(int64_t bytes, Kind kind, std::string_view name, const Shape& shape) {
  if (!keeps_history_) return;
  const int64_t left = std::max<int64_t>(0, budget_ - meter_.reserved());
  history_.push_back({Action::OutOfMemory, 0, left, bytes, kind, std::string(name), range(), shape,
                      seconds_now() - history_begin_});
}

}  // namespace gradus
