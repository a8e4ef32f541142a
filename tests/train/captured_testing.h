// A small training whose steps may be captured: the data of each step, and the step.
#pragma once
#include "src/core/rng.h"
#include "src/nn/transformer.h"
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "src/tensor/captured_step.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {

using Numbers = std::vector<std::vector<double>>;
using Make = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
inline std::unique_ptr<Optimizer> adamw(Parameters& p) { return std::make_unique<AdamW>(p); }

struct Way {
  std::string name, recipe = "fp32";
  int64_t micro_batches = 1;
  Keep keep = Keep::All;
  Make make = adamw;
  float loss_scale = 65536;
  bool clips = true;
  int64_t loss_rows = 0;
  double dropout = 0.2;
};
inline std::ostream& operator<<(std::ostream& out, const Way& k) { return out << k.name; }
inline const std::vector<Way> kWays{
    {.name = "fp32"},
    {.name = "bf16", .recipe = "mixed"},
    {.name = "fp16", .recipe = "mixed-fp16", .loss_scale = 0x1p18f},  // some updates are skipped
    {.name = "accumulation", .micro_batches = 3},
    {.name = "checkpointing", .keep = Keep::Input},
    {.name = "both_in_bf16", .recipe = "mixed", .micro_batches = 2, .keep = Keep::LessAttention},
    {.name = "unclipped_sgd",
     .make = [](Parameters& p) { return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f}); },
     .clips = false},
    {.name = "loss_in_parts", .loss_rows = 5},
    {.name = "loss_in_parts_accumulated", .recipe = "mixed", .micro_batches = 2, .loss_rows = 5},
    {.name = "loss_in_parts_in_fp16", .recipe = "mixed-fp16", .loss_scale = 0x1p18f, .loss_rows = 5},
    {.name = "adamw_8bit", .make = [](Parameters& p) { return std::make_unique<AdamW8bit>(p); }},
    {.name = "adafactor", .make = [](Parameters& p) { return std::make_unique<Adafactor>(p); }},
    {.name = "muon", .recipe = "mixed", .make = [](Parameters& p) { return std::make_unique<Muon>(p); }},
};

// A model and its optimizer, with buffers that are filled for each step.
struct Training {
  explicit Training(const Way& kind, uint64_t seed = 1)
      : kind(kind),
        seed(seed),
        model({.vocab = 40,
               .context = 6,
               .layers = 2,
               .heads = 2,
               .channels = 32,
               .dropout = kind.dropout,
               .precision = precision_recipe(kind.recipe),
               .loss_rows = kind.loss_rows}) {
    model.initialize(seed);
    model.segments = {{2, kind.keep}};
    optimizer = kind.make(model.parameters);
    if (kind.recipe == "mixed-fp16") start_loss_scaling(current().device, kind.loss_scale, 3);
    for (int64_t m = 0; m < kind.micro_batches; ++m)
      for (const char* name : {"inputs", "targets"})
        inputs.emplace_back(current().device, Shape{2, 6}, DType::I32, Kind::Data, name);
  }
  void fill(int64_t step) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      Rng rng(seed, uint64_t(step), uint64_t(1000 * i));
      std::vector<int32_t> ids(size_t(inputs[i].numel()));
      for (int32_t& id : ids) id = int32_t(rng.below(40));
      current().device.copy_in(inputs[i].set().p, ids.data(), inputs[i].bytes());
    }
    optimizer->set_learning_rate(1e-2 / double(1 + step));
  }
  void step() {
    loss = {};
    for (int64_t m = 0; m < kind.micro_batches; ++m) {
      current().first_sample = 2 * m;
      Tape tape;
      const Tensor part = scale(model.loss(inputs[size_t(2 * m)], inputs[size_t(2 * m + 1)]),
                                1.0 / double(kind.micro_batches));
      tape.backward(part);
      loss = m == 0 ? part.detach() : add(loss, part.detach());
    }
    if (kind.clips) optimizer->clip_grad_norm(0.5);
    optimizer->step();
    model.parameters.zero_grad();
  }
  Numbers numbers() const {
    Numbers all;
    for (const Parameter& p : model.parameters) all.push_back(to_host<double>(p.kept()));
    return all;
  }
  Way kind;
  uint64_t seed;
  Transformer model;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<Tensor> inputs;
  Tensor loss;
  std::unique_ptr<CapturedStep> captured;
};

struct CapturedStepTest : ::testing::Test {
  Context context{"cpu", 3};
  Training t{{.name = "fp32"}};
  CapturedStep captured;
  int64_t steps = 0;
  void run(const std::function<void()>& step) {
    t.fill(steps++);
    captured.run(t.inputs, step);
  }
  void run() {
    run([this] { t.step(); });
  }
  void record() {
    while (!captured.replays()) run();
  }
  std::string refused() {  // in the next run, which changes nothing
    const Numbers before = t.numbers();
    const int64_t updates = t.optimizer->scalars().updates;
    const std::string text = refusal([&] { run(); });
    EXPECT_EQ(t.numbers(), before);
    EXPECT_EQ(t.optimizer->scalars().updates, updates);
    return text;
  }
};
inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" should say: " << part;
}

}  // namespace gradus
