// The settings of the trainer: every choice that the lessons teach, as a flag or as a field of a JSON file.
// They are also stored in the file of a saved run.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/core/args.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/parallel/layout.h"

namespace gradus {

struct TrainSettings {
  std::string data = "steps.grammar", model = "gpt-4x128x4", weights;  // lessons 03, 12
  int64_t text_bytes = 300'000, vocab = 256, context = 64, batch = 16, steps = 300, seed = 1, workers = 0;
  double dropout = 0, capacity = 0, balance = 0;
  std::string blocks = "own", head = "own";                // other values: llama; tied, untied
  int64_t kv_heads = 0, mlp = 0, experts = 0, chosen = 2;  // lesson 21
  std::string optimizer = "adamw", precision = "fp32";     // lessons 06, 11, 09
  double learning_rate = 1e-3, last_rate = 1e-4, clip = 1, weight_decay = 0, beta2 = 0.999, momentum = 0.9;
  int64_t warmup = 20, micro_batches = 1;               // lesson 07
  std::string keep = "store-all", attention = "plain";  // lessons 08, 15
  int64_t loss_rows = 0, empty_every = 0;               // lessons 16, 05
  int64_t lora = 0;                                     // lesson 12: the adapters' rank
  double lora_alpha = 16;
  std::string adapted = ".*", frozen = "kept", calls = "each";  // lessons 12, 16
  Layout layout;                                                // lessons 17 to 20
  int64_t zero = 1, chunks = 1;                                 // lessons 18, 20
  std::string tokens = "whole";                                 // lesson 19
  std::string used;                                             // all settings as JSON
};

// The words of the command line, followed by flags that it does not have: first those of --settings=FILE, a
// JSON object, then those of the saved run of --load=FILE. Rejects values that are lists or objects.
std::vector<std::string> with_files(int argc, char** argv);
// Declares the flags. ranks: the number of all ranks.
TrainSettings settings_of(Args& args, int64_t ranks);
// From a string of flags, "--ranks=4 --zero=3". If a flag occurs twice, the last one counts.
TrainSettings settings_of(const std::string& flags);

TransformerConfig config_of(const TrainSettings& s);
// Initializes the weights (random, or from a file), sets the checkpointing policy, and adds adapters.
void prepare(Transformer& model, const TrainSettings& s, const AssignValues& assign = &Parameter::assign);
std::unique_ptr<Optimizer> optimizer_of(const TrainSettings& s, Parameters& parameters);
void start_scaling(const TrainSettings& s);  // in the current context, if the model computes in fp16

}  // namespace gradus
