// Training on batches of changing length, and what can be done about the memory that this wastes.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/nn/transformer.h"
#include "src/train/report.h"

namespace gradus {

struct Stream {  // of batches (batch, T)
  TransformerConfig model;
  int64_t batch;
  int64_t shortest, median, longest;  // T is log-normal, and cut to these bounds
  double spread;                      // the standard deviation of log T
};
std::vector<int64_t> draw_lengths(const Stream&, int64_t steps, uint64_t seed);

struct Cure {  // all of them off: naive
  std::string name;
  bool padded = false;      // every batch is as long as the longest
  bool warmed_up = false;   // the first two batches are
  int64_t third = 0;        // the length of the third batch; 0: as drawn
  bool expandable = false;  // Allocator::set_expandable
  int64_t empty_every = 0;  // steps after which the cache is emptied; 0: never
  int64_t budget = 0;       // bytes of the device; 0: as many as it has
};

struct StreamRun {
  Usage peak;
  int64_t reserved = 0;         // at its own peak
  int64_t requests = 0;         // segments and pages asked of the device
  int64_t late_requests = 0;    // of them, after the second step; with Cure::third, after the third
  int64_t repeat_requests = 0;  // of these, in steps no longer than one before, the first apart
  int64_t given_back = 0;       // of them
  int64_t out_of_memory = 0;    // how many runs ended so
  double step_seconds = 0;      // median after the second step; 0: no such step
  double ratio() const { return double(reserved) / double(peak.allocated()); }
};

// Runs `steps` steps of forward, backward and AdamW on the current device, which is to be fresh. `between` is
// called between the two passes of every step.
using Between = std::function<void(int64_t step, Transformer&, Tape&)>;
StreamRun run_stream(const Stream&, const Cure&, int64_t steps, uint64_t seed, const Between& between = {});

// On meta, `streams` of them with seeds of their own: of each figure the worst.
StreamRun run_on_meta(const Stream&, const Cure&, int64_t steps, uint64_t first_seed, uint64_t streams);

}  // namespace gradus
