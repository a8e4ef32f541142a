// Who takes part in lesson 11, and how each trains.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lessons/11_adam8bit/states.h"
#include "src/data/loader.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"

namespace gradus {

constexpr AdamWArgs kAdamArgs{.beta2 = 0.99f};  // of all contenders

struct AdamContender {
  std::string name;
  int64_t block;  // of elements of a state that share a scale; 0: all of a tensor; -1: states in fp32
  std::function<std::unique_ptr<Optimizer>(Parameters&)> make;
  int64_t micro_batches = 1;
  bool all_techniques = false;  // in bf16 (lesson 09), every block checkpointed (lesson 08)
};
// AdamW in fp32; AdamW8bit; and QuantizedAdamW in a format.
AdamContender fp32_contender(), coded_contender(), contender_of(const StateFormat&format);
// AdamW in fp32; the same in two micro-batches, which differs from it by rounding alone; AdamW with its
// states in each format of the ablation; AdamW8bit; and that with all that lessons 07 to 09 do against a lack
// of memory.
const std::vector<AdamContender>& adam_contenders();

constexpr int64_t kMovesSteps = 100;
struct RunSetting {
  TransformerConfig model;
  int64_t batch, steps;
  double learning_rate;
  int64_t moves_steps = kMovesSteps;  // of the runs in which moves are measured
};
struct Trained {
  ReportRow row;
  std::vector<double> losses;
  int64_t predicted;  // bytes of the states
  Moments moments;    // at the end, of the tensors that AdamW8bit keeps in 8 bits; of fp32 states alone
};
// In a context of its own. `seed`: of the first weights.
Trained train(const Lesson& lesson, const RunSetting& setting, const Loader& loader, const AdamContender& who,
              uint64_t seed);

// Checks a run's bytes; and means of the held-out losses, by name, over so many starts of 800 steps; `skip`:
// why they decide nothing.
void check_bytes(const Trained& t, Report& report);
void check_losses(const std::map<std::string, double>& mean, int64_t starts, const std::string& skip,
                  Report& report);

// Loss against steps of those that train without micro-batches; what is above the first loss is left out.
void draw_losses(const std::vector<Trained>& all, const std::string& path);

}  // namespace gradus
