// Finds leaks and spikes in a memory history (src/memory/history.h).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/memory/history.h"

namespace gradus {

using History = std::vector<MemoryEvent>;

// The events that allocate and free a block, by their number. A block that is never freed ends at
// history.size().
struct Life {
  size_t begin, end;
};
std::vector<Life> lives_of(const History&);  // in the order of allocation

// The number of the first event of each step, and the number after the last event of the last step. A step
// begins when the program enters the range `first`; the last step ends when the program is in no range.
std::vector<size_t> step_begins(const History&, const std::string& first);

// Blocks with the same name and op that are allocated in several steps and stay alive.
struct Leak {
  std::string name, op;
  int64_t bytes = 0;                // of all these blocks, as requested
  std::vector<int64_t> steps = {};  // in which they were allocated
};
// A block allocated in step n leaks if it is still alive when step n + `patience` ends. Blocks that were
// allocated in one step only and stay alive (for example the gradients) are no leak. The largest leak first.
std::vector<Leak> find_leaks(const History&, const std::vector<size_t>& begins, int64_t patience);

// The largest block alive at the peak that lives for at most `short_life` events.
struct Spike {
  std::string name, op;
  int64_t bytes, peak, step;  // of the block, as requested; allocated at the peak; of the block's allocation
  size_t events;              // for which the block is alive
  double share() const { return double(bytes) / double(peak); }
};
std::optional<Spike> find_spike(const History&, const std::vector<size_t>& begins, size_t short_life);

}  // namespace gradus
