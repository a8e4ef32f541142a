// A model that knows one language is adapted to another, in several ways.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/nn/lora.h"
#include "src/train/lesson.h"

namespace gradus {

struct WayToAdapt {
  std::string name, pattern = "";  // pattern: of the layers with an adapter; empty: none
  int64_t r = 0;
  double learning_rate = 0;
  bool head_only = false;  // the last norm and the output head train
  bool half = false;       // computed in bf16; what is frozen is kept so
  bool in_4_bits = false;  // the frozen weights of linear layers
};
const std::vector<WayToAdapt>& ways_to_adapt();

struct Adaptation {
  TransformerConfig model;
  int64_t batch, base_steps = 0, steps = 0;
};
using Weights = std::vector<std::vector<double>>;  // of a model's parameters, in their order

// The base: all weights, from the start.
Weights train_base(const Lesson& lesson, const Adaptation& schedule, const Loader& loader, ReportRow& row);

// A model of the base's weights, prepared for a way: what trains, with adapters, in 4 bits.
std::unique_ptr<Transformer> adapted_model(const TransformerConfig& config, const Weights& base,
                                           const WayToAdapt& way, uint64_t seed);

struct Adapted {
  ReportRow row;
  std::vector<double> losses;
  int64_t trainable = 0, gradient_bytes = 0;  // after the last step
};
// In a context of its own. `other`: the base's text. If `folder` is not empty, the adapters are saved there.
Adapted adapt(const Lesson& lesson, const Adaptation& schedule, const Weights& base, const Loader& loader,
              const Loader& other, const WayToAdapt& way, const std::string& folder);

// What trains in a way: of a layer with an adapter r (in + out) numbers.
int64_t predicted_trainable(const TransformerConfig& config, const WayToAdapt& way);
// Bytes: two states of what trains, and a gradient, in fp32.
void check_bytes(const TransformerConfig& config, const WayToAdapt& way, int64_t states, int64_t gradients,
                 Report& report);
// The held-out losses, of runs of so many steps: for others the bounds are not meant.
constexpr int64_t kWholeRun = 800;
void compare_losses(const std::vector<Adapted>& all, int64_t steps, Report& report);

void draw_losses(const std::vector<Adapted>& all, double floor, const std::string& path);

}  // namespace gradus
