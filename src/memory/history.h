// The memory history: everything an allocator did, in order, with what it was done for. Replayed from the
// beginning it gives every state there was: which blocks were alive, of which kind, and what was reserved.
// src/io/memory_files.h makes a picture, a page for the browser and a file for PyTorch's viewer of it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/shape.h"
#include "src/memory/meter.h"

namespace gradus {

enum class Action : uint8_t {
  Alloc,         // a block is handed out
  Free,          // and comes back
  ChangeKind,    // a block in use is of another kind from now on
  SegmentAlloc,  // the device gives a segment
  SegmentFree,   // and gets it back
  SegmentMap,    // pages of an expandable segment get memory
  SegmentUnmap,  // and lose it
  OutOfMemory,   // a request fails
};
const char* name_of(Action);  // "alloc", "free", "kind", "segment_alloc", ...

struct MemoryEvent {
  Action action;
  int64_t address;        // on the device
  int64_t bytes = 0;      // of the block, the segment or the pages; OutOfMemory: what the budget had left
  int64_t requested = 0;  // of the block: what the program asked for
  Kind kind = Kind::Other;
  std::string name, op;  // the block's name; what the program was in, as in "backward/linear" (ranges.h)
  Shape shape;
  double seconds = 0;  // since the history began
};

// Goes through a history again.
class MemoryReplay {
 public:
  void apply(const MemoryEvent&);
  Meter meter;                           // as the allocator's was after it; pages mapped together: 1 request
  std::map<int64_t, MemoryEvent> alive;  // by address: the Alloc of each block, with its present kind
};

// The first event after which most is allocated; an Error if nothing ever was.
size_t peak_event(const std::vector<MemoryEvent>& history);

// The instant when the allocated bytes first reached their highest value.
struct MemoryPeak {
  Usage usage;
  MemoryEvent reached_by;          // the allocation that did it, with the op it was for
  std::vector<MemoryEvent> alive;  // largest first
};
MemoryPeak memory_peak(const std::vector<MemoryEvent>& history);

}  // namespace gradus
