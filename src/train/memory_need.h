// The model memory calculator: what a training run needs, found by running two of its steps on the device
// meta, where the allocator does all it would do on a GPU and nothing is computed.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

struct TrainingRun {  // with AdamW, on dummy tokens
  TransformerConfig model;
  int64_t batch, seq;  // sequences a step, tokens a sequence
};

struct MemoryNeed {
  MemoryPeak peak;   // the bytes allocated at the peak by kind, at which op, and who was alive
  int64_t reserved;  // the most that the allocator held, with what it keeps and what it cannot use
  int64_t parameters;
};
// Errors: sizes that cannot be (a sequence longer than the context, a batch below 1).
MemoryNeed memory_need(const TrainingRun&);

// Whether two steps run within `budget` bytes; the allocator gives back what it keeps before it fails.
bool fits(const TrainingRun&, int64_t budget);
// The largest batch that fits, whatever run.batch is; 0: not even one sequence.
int64_t largest_batch(TrainingRun run, int64_t budget);

}  // namespace gradus
