// What differs between the ways to adapt a trained model to a new text, and what is checked about each.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/nn/lora.h"
#include "src/train/lesson.h"
#include "src/train/step_recorder.h"

namespace gradus {

constexpr const char* kLora = "LoRA r 2";  // the way that others are compared with
constexpr const char* kOldText =
    "loss on the old text";  // held-out loss; the base model was trained on the old text

struct WayToAdapt {
  std::string name, pattern = "";         // pattern: names of the layers with an adapter; empty: none
  int64_t r = 0;                          // rank of the adapters; alpha is 2 r
  double learning_rate = 0, dropout = 0;  // dropout: of the adapters' inputs
  bool head_only = false;                 // only the last norm and the output head train
  bool half = false;                      // computes in bf16, and stores frozen weights in bf16
  bool in_4_bits = false;                 // stores the frozen weights of linear layers in NF4
  bool checkpointed = false;              // saves only the input of each transformer block
  bool paged = false;                     // optimizer states are on the host between updates
};
const std::vector<WayToAdapt>& ways_to_adapt();

struct Adaptation {
  TransformerConfig model;
  int64_t batch, base_steps, steps;
};
Adaptation on_cpu(int64_t steps);
Adaptation for_emulation(int64_t steps);  // a small model

using Weights = std::vector<std::vector<double>>;  // of a model's parameters, in their order
Weights weights_of(const Transformer& model);
std::unique_ptr<Transformer> base_model(const TransformerConfig& config, const Weights& base);
// A base model that a way has prepared: what trains, with adapters, in 4 bits, with checkpointing.
std::unique_ptr<Transformer> adapted_model(const TransformerConfig& config, const Weights& base,
                                           const WayToAdapt& way, uint64_t seed);

// Asks the pagers of optimizers for room until all their states are on the host, as the allocator of a full
// device does.
void move_states_to_host(Device& device);

struct Adapted {
  ReportRow row;  // with the bytes by kind at the peak, and those on the host
  std::vector<double> losses;
  int64_t trainable = 0, gradient_bytes = 0;  // after the last step
};
Adapted measure_adapted(const Transformer& model, const StepRecorder& recorder, const Adaptation& a,
                        const Loader& new_text, const Loader& old_text, const std::string& name);

// Parameters that train: r (in + out) per layer with an adapter.
int64_t predicted_trainable(const TransformerConfig& config, const WayToAdapt& way);
// Bytes of the weights of a way in 4 bits: codes and scales of linear layers; all else in bf16.
int64_t predicted_weight_bytes(const TransformerConfig& config, const WayToAdapt& way);
// Optimizer states (two per parameter that trains, in fp32), gradients (fp32), weights in 4 bits.
void check_bytes(const TransformerConfig& config, const WayToAdapt& way, const Adapted& run, Report& report);
// Held-out losses of runs of kWholeRun steps (the bounds are not meant for different runs), and peaks.
constexpr int64_t kWholeRun = 800;
void compare_ways(const std::vector<Adapted>& all, int64_t steps, Report& report);

void draw_losses(const std::vector<Adapted>& all, double floor, const std::string& path);

}  // namespace gradus
