// Two models with their optimizers and tapes, interleaved: in one context, and in two.
#include <gtest/gtest.h>

#include "src/ops/ops.h"
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TransformerConfig small(double dropout) {
  return {.vocab = 80, .context = 8, .layers = 1, .heads = 2, .channels = 64, .dropout = dropout};
}
using Make = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
const std::vector<std::pair<std::string, Make>> kOptimizers{
    {"Sgd", [](Parameters& p) { return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f}); }},
    {"AdamW", [](Parameters& p) { return std::make_unique<AdamW>(p, AdamWArgs{.weight_decay = 0.1f}); }},
    {"AdamW8bit", [](Parameters& p) { return std::make_unique<AdamW8bit>(p); }},
    {"Adafactor", [](Parameters& p) { return std::make_unique<Adafactor>(p); }},
    {"Muon", [](Parameters& p) { return std::make_unique<Muon>(p); }}};

struct Trained {
  Trained(const Make& make, double dropout, uint64_t seed) : seed(seed), model(small(dropout)) {
    model.initialize(seed);
    optimizer = make(model.parameters);
  }
  void forward(int64_t step) {
    const DummyBatch batch = dummy_batch(model.config, 2, 8, 100 * seed + uint64_t(step));
    tape = std::make_unique<Tape>();
    loss = batch.loss(model);
  }
  void backward() {
    model.parameters.zero_grad();
    tape->backward(loss);
    optimizer->clip_grad_norm(0.5);
  }
  void step() { optimizer->step(1e-2); }
  std::vector<std::vector<double>> numbers() const {
    std::vector<std::vector<double>> all;
    for (const Parameter& p : model.parameters) all.push_back(to_host<double>(p.value));
    return all;
  }
  uint64_t seed;
  Transformer model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Tape> tape;
  Tensor loss;
};

constexpr int64_t kSteps = 3;
// Trains one model in its own context; `attempts`: the numbers of its attempts; empty: 1, 2, ...
std::vector<std::vector<double>> alone(const char* device, const Make& make, double dropout, uint64_t seed,
                                       const std::vector<int64_t>& attempts = {}) {
  Context context(device, 3);
  Trained run(make, dropout, seed);
  for (int64_t step = 0; step < kSteps; ++step) {
    context.end_attempt();
    if (!attempts.empty()) context.device.set(&StepScalars::step, attempts[size_t(step)]);
    run.forward(step), run.backward(), run.step();
  }
  return run.numbers();
}

// Runs the steps of two models in this order: a, b: forward; A, B: backward; 1, 2: optimizer step.
void interleave(Trained& a, Trained& b, std::string_view order, const std::function<void(bool)>& switch_to) {
  for (int64_t step = 0; step < kSteps; ++step)
    for (const char what : order) {
      const bool first = what == 'a' || what == 'A' || what == '1';
      switch_to(first);
      Trained& run = first ? a : b;
      if (what == 'a' || what == 'b') run.forward(step);
      if (what == 'A' || what == 'B') run.backward();
      if (what == '1' || what == '2') run.step();
    }
}
constexpr const char* kOrders[] = {"aA1bB2", "abAB12", "abA1B2", "abB2A1", "aAbB21", "abAB21"};

// Without dropout the models share one context; with dropout each has its own.
TEST(L03_TwoModels, EachTrainsAsAlone) {
  for (const char* device : devices_with_data())
    for (const auto& [name, make] : kOptimizers)
      for (const double dropout : {0.0, 0.2}) {
        if (device != std::string_view("cpu") && name != "AdamW") continue;
        const auto a = alone(device, make, dropout, 1), b = alone(device, make, dropout, 2);
        for (const char* order : kOrders) {
          Context one(device, 3);
          Trained first(make, dropout, 1);
          std::optional<Context> two;
          if (dropout > 0) two.emplace(device, 3);
          Trained second(make, dropout, 2);
          interleave(first, second, order,
                     [&](bool of_one) { (of_one || !two ? one : *two).make_current(); });
          EXPECT_EQ(first.numbers(), a) << name << " on " << device << ", order " << order;
          EXPECT_EQ(second.numbers(), b) << name << " on " << device << ", order " << order;
        }
      }
}

// An attempt begins with the first tape after a step, for either model.
TEST(L03_TwoModels, WithDropoutInOneContextTheyTrainAsAloneAtTheSameAttempts) {
  struct Attempts {
    const char* order;
    std::vector<int64_t> of_a, of_b;
  };
  for (const char* device : devices_with_data())
    for (const auto& [name, make] : kOptimizers) {
      if (device != std::string_view("cpu") && name != "AdamW") continue;
      for (const Attempts& t : std::vector<Attempts>{{"aA1bB2", {1, 3, 5}, {2, 4, 6}},
                                                     {"abAB12", {1, 2, 3}, {1, 2, 3}},
                                                     {"abA1B2", {1, 2, 3}, {1, 2, 3}},
                                                     {"abB2A1", {1, 2, 3}, {1, 2, 3}}}) {
        Context context(device, 3);
        Trained first(make, 0.2, 1), second(make, 0.2, 2);
        interleave(first, second, t.order, [](bool) {});
        EXPECT_EQ(first.numbers(), alone(device, make, 0.2, 1, t.of_a)) << name << device << t.order;
        EXPECT_EQ(second.numbers(), alone(device, make, 0.2, 2, t.of_b)) << name << device << t.order;
      }
    }
}

// Between a forward and its backward, the next step changes the attempt, the seed, the first sample and the
// rate.
TEST(L03_TwoModels, AStepBetweenForwardAndBackwardChangesNoGradient) {
  const auto plain_attention = small(0.3), flash = [] {
    TransformerConfig c = small(0.3);
    c.attention = attention_flash;
    return c;
  }();
  for (const char* device : devices_with_data())
    for (const TransformerConfig& config : {plain_attention, flash})
      for (const bool recomputed : {false, true}) {
        std::vector<std::vector<double>> gradients[2];
        for (const bool disturbed : {false, true}) {
          Context context(device, 3);
          Transformer model(config);
          model.initialize(1);
          if (recomputed) model.segments = {{1, Keep::Input}};
          Parameters other;
          Parameter& p = other.add("p", {1}, {});
          Sgd optimizer(other);
          const DummyBatch batch = dummy_batch(config, 2, 8);
          context.first_sample = 4;
          Tape tape;
          const Tensor loss = batch.loss(model);
          if (disturbed) {
            p.leaf.grad =
                from_host(context.device, std::vector<double>{1}, {1}, DType::F32, Kind::Gradient, "g");
            p.leaf.written = true;
            optimizer.step(0.1);
            const Tape next;  // begins an attempt
            context.seed = 4, context.first_sample = 0;
          }
          tape.backward(loss);
          for (const Parameter& of : model.parameters)
            gradients[disturbed].push_back(to_host<double>(of.leaf.grad));
        }
        EXPECT_EQ(gradients[0], gradients[1])
            << device << (recomputed ? ", recomputed" : "") << (config.attention == attention_flash);
      }
}

static_assert(!std::is_copy_constructible_v<Parameter> && !std::is_copy_assignable_v<Parameter>);
static_assert(!std::is_copy_constructible_v<Parameters> && !std::is_copy_assignable_v<Parameters>);
static_assert(!std::is_copy_constructible_v<Transformer> && std::is_move_constructible_v<Transformer>);

TEST(L03_TwoModels, AModelThatHasMovedTrainsOn) {
  std::vector<double> losses[2];
  for (const bool moves : {false, true}) {
    Context context("cpu", 3);
    Transformer model(small(0.1));
    model.initialize(1);
    AdamW optimizer(model.parameters);
    std::optional<Transformer> moved;
    const Transformer* now = &model;
    for (int64_t step = 0; step < 4; ++step) {
      const DummyBatch batch = dummy_batch(model.config, 2, 8, uint64_t(step));
      Tape tape;
      const Tensor loss = batch.loss(*now);
      if (moves && step == 2) now = &moved.emplace(std::move(model));  // between forward and backward
      losses[moves].push_back(item(loss));
      const_cast<Transformer*>(now)->parameters.zero_grad();
      tape.backward(loss);
      optimizer.step(1e-2);
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(L02_TwoModels, ATapeMayOutliveItsModel) {
  Context context("cpu", 3);
  Tape used, unused;
  Tensor loss;
  {
    Transformer model(small(0.1));
    model.initialize(1);
    used.make_current();
    loss = dummy_batch(model.config, 2, 8).loss(model);
    unused.make_current();
    dummy_batch(model.config, 2, 8).loss(model);
  }
  expect_refused("a parameter that it read has ended before the backward pass", [&] { used.backward(loss); });
}  // both tapes end here, after the model

TEST(L02_TwoModels, AModelOfAnotherContextIsRefused) {
  for (const char* own : {"cpu", "emu", "meta"})
    for (const char* other : {"cpu", "meta"}) {
      Context first(own);
      Transformer model(small(0));
      if (own != std::string_view("meta")) model.initialize(1);
      Sgd optimizer(model.parameters);
      const Context second(other);
      const DummyBatch batch = dummy_batch(model.config, 2, 8);
      for (const bool recorded : {true, false}) {
        std::unique_ptr<Tape> tape;
        if (recorded) tape = std::make_unique<Tape>();
        expect_refused("is of another context than the current one", [&] { batch.loss(model); });
      }
      for (Parameter& p : model.parameters) p.leaf.grad = p.value, p.leaf.written = true;
      expect_refused("another context", [&] { optimizer.step(0.1); });
      first.make_current();
      dummy_batch(model.config, 2, 8).loss(model);
    }
}

}  // namespace
}  // namespace gradus
