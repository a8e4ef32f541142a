// The memory history: all events of an allocator, in order, each with the op that ran. A replay from the
// beginning gives every state: the live blocks, their kinds, and the reserved bytes. src/io/memory_files.h
// writes it as a picture, as a page for the browser and as a file for PyTorch's viewer.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/shape.h"
#include "src/memory/meter.h"

namespace gradus {

enum class Action : uint8_t {
  Alloc,         // a block is allocated
  Free,          // a block is freed
  ChangeKind,    // the kind of a block in use changes
  SegmentAlloc,  // the device provides a segment
  SegmentFree,   // a segment is returned to the device
  SegmentMap,    // memory is mapped at pages of an expandable segment
  SegmentUnmap,  // pages are unmapped
  OutOfMemory,   // a request fails
};
const char* name_of(Action);  // "alloc", "free", "kind", "segment_alloc", ...

struct MemoryEvent {
  Action action;
  int64_t address;        // on the device
  int64_t bytes = 0;      // of the block, the segment or the pages; OutOfMemory: bytes left in the budget
  int64_t requested = 0;  // blocks: the bytes that the program asked for
  Kind kind = Kind::Other;
  std::string name, op;  // the block's name; the open ranges, as in "backward/linear" (ranges.h)
  Shape shape;
  double seconds = 0;  // since the history began
};

// Replays a history.
class MemoryReplay {
 public:
  void apply(const MemoryEvent&);
  Meter meter;                           // as the allocator's, but pages mapped together count once
  std::map<int64_t, MemoryEvent> alive;  // by address: the Alloc of each block, with its current kind
};

// The first event after which the most bytes are allocated; an Error without an Alloc.
size_t peak_event(const std::vector<MemoryEvent>& history);

// The instant when the allocated bytes first reached their highest value.
struct MemoryPeak {
  Usage usage;
  MemoryEvent reached_by;          // the allocation that reached it, with its op
  std::vector<MemoryEvent> alive;  // largest first
};
MemoryPeak memory_peak(const std::vector<MemoryEvent>& history);

}  // namespace gradus
