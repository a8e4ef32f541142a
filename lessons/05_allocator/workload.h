// A workload is training on batches of changing length. A cure is a change that makes it reserve less memory.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/nn/transformer.h"
#include "src/train/report.h"

namespace gradus {

struct Workload {  // its batches are (batch, T)
  TransformerConfig model;
  int64_t batch;
  int64_t shortest, median, longest;  // T is log-normal, cut to the bounds shortest and longest
  double spread;                      // the standard deviation of log T
};
std::vector<int64_t> draw_lengths(const Workload&, int64_t steps, uint64_t seed);

struct Cure {  // with all of them off: naive
  std::string name;
  bool padded = false;      // every batch has the greatest length
  bool warmed_up = false;   // the first two batches have the greatest length
  int64_t third = 0;        // the length of the third batch; 0: as drawn
  bool expandable = false;  // Allocator::set_expandable
  int64_t empty_every = 0;  // the cache is emptied after every so many steps; 0: never
  int64_t budget = 0;       // bytes of memory that the device has; 0: no limit
};

struct WorkloadRun {
  Usage peak;
  int64_t reserved = 0;            // at its own peak
  int64_t device_allocations = 0;  // segments and pages that the allocator got from the device
  int64_t late_allocations = 0;    // of these, after step 2; with Cure::third, after step 3
  int64_t repeat_allocations =
      0;                      // after step 2, while T was at most that of an earlier step; see run_workload
  int64_t device_frees = 0;   // segments and pages that it returned
  int64_t out_of_memory = 0;  // how many runs ended out of memory
  double step_seconds = 0;    // median of the steps after step 2; 0: there is none
  double ratio() const { return double(reserved) / double(peak.allocated()); }
};

// Runs `steps` steps (forward pass, backward pass, AdamW) on the current device, which must be new. Each step
// calls `between` after its forward pass. In repeat_allocations the first step does not count as an earlier
// step, because its forward pass used the memory that the gradients take in its backward pass and then keep.
using Between = std::function<void(int64_t step, Transformer&, Tape&)>;
WorkloadRun run_workload(const Workload&, const Cure&, int64_t steps, uint64_t seed,
                         const Between& between = {});

// Runs the workload on meta with `workloads` seeds; returns the largest value of each count, and the memory
// of the run with the largest ratio.
WorkloadRun run_on_meta(const Workload&, const Cure&, int64_t steps, uint64_t first_seed, uint64_t workloads);

}  // namespace gradus
