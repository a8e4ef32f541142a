// From which batch on a model needs less memory in mixed precision than in fp32, and how much faster it is.
#pragma once
#include <string>

#include "src/nn/transformer.h"
#include "src/train/lesson.h"

namespace gradus {

struct StepCost {
  int64_t bytes;       // allocated at the peak of training
  double seconds = 0;  // of a step, the fastest of some
};
StepCost step_cost(const Lesson& lesson, const TransformerConfig& fp32, const std::string& recipe,
                   int64_t batch);

// The smallest batch at which mixed precision in bf16 needs no more memory than fp32, with AdamW: by what it
// needs more for parameters, and less for what the blocks save.
int64_t predicted_crossing(const TransformerConfig& config);
int64_t measured_crossing(const TransformerConfig& config);  // on meta

// Memory and time of both, batch by batch: 1, half of the predicted crossing, it, and four times it.
struct BatchCosts {
  int64_t parameters, predicted, measured;  // the crossings
  struct Batch {
    int64_t size;
    StepCost fp32, mixed;
  };
  std::vector<Batch> batches;
};
BatchCosts batch_costs(const Lesson& lesson, const TransformerConfig& config);
void batches_table(const BatchCosts& costs, Report& report);

}  // namespace gradus
