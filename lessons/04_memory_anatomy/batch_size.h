// (e) The choice of the batch size: 1, 2, 4, … until the budget is exceeded, with memory and time of each
// size.
#pragma once
#include "src/nn/transformer.h"
#include "src/train/lesson.h"

namespace gradus {

// Trains `steps` steps (at least two: the first allocates the gradients) with each batch size, within
// `budget` bytes. After the out-of-memory error it trains with a batch of 1, to show that all memory was
// freed and that training continues. Prints a table and draws build/plots/04_batch_*.svg.
void batch_size_table(const Lesson& lesson, const TransformerConfig& model, int64_t steps, int64_t budget,
                      Report& report);

struct BatchTrial {
  int64_t batch;
  double seconds;  // per step
  int64_t allocated, reserved;
  std::string failure;  // the out-of-memory error; empty: none
};
// The last trial is a batch of 1 after the error; `held`: the bytes allocated before it, for N parameters.
void check_trials(const std::vector<BatchTrial>& trials, int64_t budget, int64_t held, int64_t N,
                  Report& report);

}  // namespace gradus
