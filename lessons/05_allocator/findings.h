// Two questions to a memory history (src/memory/history.h): what leaks, and what makes the peak?
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/memory/history.h"

namespace gradus {

using History = std::vector<MemoryEvent>;

// A block from its allocation to when it is freed: numbers of events. What is never freed ends at
// history.size().
struct Life {
  size_t begin, end;
};
std::vector<Life> lives_of(const History&);  // in the order of allocation

// Where each step begins, as numbers of events, and where the last one ends: a step begins when the program
// enters the range `first`, and the last ends when it is in no range any more.
std::vector<size_t> step_begins(const History&, const std::string& first);

// Blocks of one name and op that come in step after step and stay.
struct Leak {
  std::string name, op;
  int64_t bytes = 0;                // of all of them, as requested
  std::vector<int64_t> steps = {};  // in which they were allocated
};
// A block allocated in step n leaks if it is alive when step n + `patience` ends. What was allocated in one
// step only and stays (the gradients, say) is no leak. The largest first.
std::vector<Leak> find_leaks(const History&, const std::vector<size_t>& begins, int64_t patience);

// The largest block alive at the peak that lives for at most `short_life` events.
struct Spike {
  std::string name, op;
  int64_t bytes, peak, step;  // of the block, as requested; all that was allocated then
  size_t events;              // its life
  double share() const { return double(bytes) / double(peak); }
};
std::optional<Spike> find_spike(const History&, const std::vector<size_t>& begins, size_t short_life);

}  // namespace gradus
