// All state of a rank is one Context behind one current pointer: its device, its random seed and counters,
// its tape. There is no other global or thread-local state, so several ranks can live in one process.
#pragma once
#include "src/memory/device.h"

namespace gradus {

class Tape;

struct Context {
  explicit Context(std::string_view device_name = "cpu", uint64_t seed = 1, int64_t memory_budget = 0);
  ~Context();  // the context that was current before becomes current again
  Context(const Context&) = delete;

  Device device;
  uint64_t seed;
  uint32_t dropout_ordinal = 0;  // ordinal of the next random op in this forward pass
  int64_t last_slot = 0;         // ids of gradient slots; 0 means no gradient
  Tape* tape = nullptr;          // where ops are recorded; nullptr: nowhere
  bool evaluates = false;        // dropout drops nothing
  bool check_finite = false;     // --check=nan: every op's output is read and tested

 private:
  Context* previous_;
};

Context& current();  // the context made last; an error if there is none

}  // namespace gradus
