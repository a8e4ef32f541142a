// The model memory calculator: what a training run needs, found by running its first steps on the device
// meta, where the allocator does all it would do on a GPU and nothing is computed.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

struct TrainingRun {  // with AdamW, on dummy tokens
  TransformerConfig model;
  int64_t batch, seq;                                               // sequences a step, tokens a sequence
  std::function<void(Transformer&)> prepare = [](Transformer&) {};  // e.g. says what the tape keeps
};

struct MemoryNeed {
  MemoryPeak peak;   // the bytes allocated at the peak by kind, at which op, and who was alive
  int64_t reserved;  // the most that the allocator held, with what it keeps and what it cannot use
  int64_t parameters;
};
// Errors: sizes that cannot be (a sequence longer than the context, a batch below 1).
MemoryNeed memory_need(const TrainingRun&);

// Whether it runs within `budget` bytes, of which there must be one at least. That can be less than
// `reserved` above: the allocator gives back what it keeps before it fails.
bool fits(const TrainingRun&, int64_t budget);
// A batch that fits while one more does not, whatever run.batch is; 0: not even one sequence. (Segments are
// cut otherwise for every size, so close to the limit a smaller batch may still fail.)
int64_t largest_batch(TrainingRun run, int64_t budget);

}  // namespace gradus
