// Memory and time of a step in fp32 and in mixed precision, by batch size.
#pragma once
#include <string>

#include "src/nn/transformer.h"
#include "src/train/lesson.h"

namespace gradus {

struct StepCost {
  int64_t bytes;       // allocated at the peak
  double seconds = 0;  // of the fastest step
};
StepCost step_cost(const Lesson& lesson, const TransformerConfig& fp32, const std::string& recipe,
                   int64_t batch);

// The smallest batch at which mixed precision in bf16 needs no more memory than fp32, with AdamW. Per
// parameter it needs more bytes, and per sequence the blocks save fewer bytes.
int64_t predicted_crossing(const TransformerConfig& config);
int64_t measured_crossing(const TransformerConfig& config);  // on meta

// Memory and time of both. The batch sizes are 1, one less than the predicted crossing, the crossing, and
// four times the crossing.
struct BatchCosts {
  int64_t parameters, predicted, measured;  // predicted and measured crossing
  struct Batch {
    int64_t size;
    StepCost fp32, mixed;
  };
  std::vector<Batch> batches;
};
BatchCosts batch_costs(const Lesson& lesson, const TransformerConfig& config);
void batches_table(const BatchCosts& costs, Report& report);

}  // namespace gradus
