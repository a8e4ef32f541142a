// The optimizers that lesson 11 compares, and a training run with one of them.
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

constexpr AdamWArgs kAdamArgs{.beta2 = 0.99f};  // of all runs

struct AdamContender {
  std::string name;
  int64_t block;  // elements of a state that share a scale; 0: the whole tensor; -1: states in fp32
  std::function<std::unique_ptr<Optimizer>(Parameters&)> make;
  int64_t micro_batches = 1;
  bool all_techniques = false;  // bf16 (lesson 09), every transformer block checkpointed (lesson 08)
};
// AdamW with states in fp32; AdamW8bit; QuantizedAdamW with a format.
AdamContender fp32_contender(), coded_contender(), contender_of(const StateFormat&format);
// AdamW with states in fp32; the same with two micro-batches, which differs only by rounding; AdamW with its
// states in each format of the ablation; AdamW8bit; AdamW8bit with the techniques of lessons 07 to 09 that
// save memory.
const std::vector<AdamContender>& adam_contenders();

constexpr int64_t kMovesSteps = 100;
struct RunSetting {
  TransformerConfig model;
  int64_t batch, steps;
  double learning_rate;
  int64_t moves_steps = kMovesSteps;  // of the runs that measure single updates, (c)
};
struct Trained {
  ReportRow row;
  std::vector<double> losses;
  int64_t predicted;  // bytes of the states
  // At the end, of the tensors whose states AdamW8bit keeps in 8 bits; empty if the states are not in fp32.
  Moments moments;
};
// Trains in a context of its own. `seed`: of the initial weights.
Trained train(const Lesson& lesson, const RunSetting& setting, const Loader& loader,
              const AdamContender& contender, uint64_t seed);

// Check the bytes of a run, and the means of the held-out losses, by name, over that many seeds. `skip`: why
// the losses are not checked.
void check_bytes(const Trained& t, Report& report);
void check_losses(const std::map<std::string, double>& mean, int64_t seeds, const std::string& skip,
                  Report& report);

// Draws the training loss against steps, of the runs without micro-batches. Losses above the first are left
// out.
void draw_losses(const std::vector<Trained>& all, const std::string& path);

}  // namespace gradus
