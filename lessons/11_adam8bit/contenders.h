// Who takes part in lesson 11, and how each trains.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lessons/11_adam8bit/states.h"
#include "src/data/loader.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"

namespace gradus {

struct Contender {
  std::string name;
  int64_t block;  // of elements of a state that share a scale; 0: all of a tensor; -1: states in fp32
  std::function<std::unique_ptr<Optimizer>(Parameters&)> make;
  int64_t micro_batches = 1;
  bool all_techniques = false;  // in bf16 (lesson 09), every block checkpointed (lesson 08)
};
// AdamW in fp32; the same in two micro-batches, which differs from it by rounding alone; AdamW with its
// states in each format; AdamW8bit; and that with all that lessons 07 to 09 do against a lack of memory.
const std::vector<Contender>& adam_contenders();

struct Schedule {
  TransformerConfig model;
  int64_t batch, steps;
  double learning_rate;
};
struct Trained {
  ReportRow row;
  std::vector<double> losses;
  int64_t predicted;  // bytes of the states
  Moments moments;    // at the end, of the tensors that AdamW8bit keeps in 8 bits; of fp32 states alone
};
// In a context of its own. `seed`: of the first weights.
Trained train(const Lesson& lesson, const Schedule& schedule, const Loader& loader, const Contender& who,
              uint64_t seed);

// Loss against steps of those that train without micro-batches; what is above the first loss is left out.
void draw_losses(const std::vector<Trained>& all, const std::string& path);

}  // namespace gradus
