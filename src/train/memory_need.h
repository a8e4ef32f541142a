// The model memory calculator: the memory that a training run needs. It runs the first steps on the device
// meta, where the allocator does all that it does on a GPU, but nothing is computed.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

struct TrainingRun {  // with AdamW, on dummy tokens
  TransformerConfig model;
  int64_t batch, seq;                                               // sequences per step, tokens per sequence
  std::function<void(Transformer&)> prepare = [](Transformer&) {};  // may set what the tape saves
};

struct MemoryNeed {
  MemoryPeak peak;   // the allocated bytes at the peak by kind, its op, and the live tensors
  int64_t reserved;  // the most that the allocator held, including free blocks
  int64_t parameters;
};
// Errors: impossible sizes (a sequence longer than the context, a batch below 1).
MemoryNeed memory_need(const TrainingRun&);

// Whether the run fits into `budget` bytes (at least 1). That can be less than `reserved` above, because the
// allocator returns its free segments to the device before it fails.
bool fits(const TrainingRun&, int64_t budget);
// A batch that fits, while one more sequence does not, whatever run.batch is; 0: not even one sequence fits.
// (Segments are split differently for every size, so close to the limit a smaller batch may still fail.)
int64_t largest_batch(TrainingRun run, int64_t budget);

}  // namespace gradus
