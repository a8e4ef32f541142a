// (e) The choice of the batch size: 1, 2, 4, … until a budget is exceeded; what each step needs and does.
#pragma once
#include "src/nn/transformer.h"
#include "src/train/lesson.h"

namespace gradus {

// Trains `steps` steps (two at least: the first makes the gradients) at each size within `budget` bytes, then
// goes on with a batch of 1 to show that nothing is lost. Prints a table and draws
// build/plots/04_batch_*.svg.
void batch_size_table(const Lesson& lesson, const TransformerConfig& model, int64_t steps, int64_t budget,
                      Report& report);

struct BatchTrial {
  int64_t batch;
  double seconds;  // a step
  int64_t allocated, reserved;
  std::string failure;  // empty: it ran
};
// The last one is a batch of 1, after running out of memory; `held`: bytes before it, of N parameters.
void check_trials(const std::vector<BatchTrial>& trials, int64_t budget, int64_t held, int64_t N,
                  Report& report);

}  // namespace gradus
