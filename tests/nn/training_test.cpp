// Training: where dropout is applied, the initial states of optimizers, and the two step counts.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/philox.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "src/train/dummy.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

const TransformerConfig kTiny{.vocab = 31, .context = 12, .layers = 2, .heads = 3, .channels = 24};

TEST(L03_Training, DropoutIsWhereGpt2HasIt) {
  RecordProperty("exercise", "03.1");
  Context context("cpu", 3);
  TransformerConfig config = kTiny;
  config.dropout = 0.1;
  Transformer model(config);
  model.initialize(1);
  Tape tape;
  model.logits(dummy_batch(config, 2, config.context).ids);
  std::vector<std::string> ops, before;  // before: the ops whose output is dropped out
  for (const Node& node : tape.nodes()) {
    if (node.op == std::string("dropout")) before.push_back(ops.back());
    ops.push_back(node.op);
  }
  EXPECT_EQ(before, (std::vector<std::string>{"add_positions", "linear", "linear", "linear", "linear"}))
      << "dropout follows the embeddings and, in each block, the projections of attention and of the MLP";
  const auto times = [&](const char* op) { return std::count(ops.begin(), ops.end(), op); };
  EXPECT_EQ(times("add"), 4) << usual_mistake(
      {{times("add") == 2, "one of a block's two branches is not added to its input"}});
  EXPECT_EQ(times("gelu"), 2) << usual_mistake(
      {{times("gelu") == 0, "the MLP is two linear layers with nothing between them"}});
}

TEST(L03_Optim, StatesBeginAtZeroWhateverLiesInMemory) {
  Context context("cpu", 3);
  Parameters parameters;
  parameters.add("w", {1000}, {});
  {
    const std::vector<double> old(1000, NAN);
    const Tensor a = from_host(context.device, old, {1000}, DType::F32, Kind::Data, "a"),
                 b = from_host(context.device, old, {1000}, DType::F32, Kind::Data, "b");
  }
  AdamW optimizer(parameters);
  for (const Tensor& state : optimizer.states[0].tensors)
    EXPECT_EQ(to_host<double>(state), std::vector<double>(1000, 0.0)) << state.storage().name();
}

// Two different counts: attempts at an update (dropout draws its masks from their number), and updates
// (Adam's bias correction uses their number).
Tensor ones(const Shape& shape) {
  return from_host(current().device, std::vector<double>(shape.numel(), 1), shape, DType::F32, Kind::Data,
                   "ones");
}

TEST(L03_StepCounts, TheFirstForwardDrawsFromStepOne) {  // step 0 belongs to initialization and data
  Context context("cpu", 42);
  const std::vector<double> got = to_host<double>(dropout(ones({3, 8}), 0.5));
  for (int64_t i = 0; i < 24; ++i) {
    const Philox4 words = dropout_words(42, 1, 0, i / 8, i % 8 / 4);
    EXPECT_EQ(got[i], uniform01(words[i % 4]) >= 0.5f ? 2 : 0) << i;
  }
}

// w after an update with a gradient of 1.
double after_update(Parameters& parameters, Optimizer& optimizer) {
  Parameter& w = *parameters.begin();
  w.leaf.zero();
  Tape tape;
  tape.backward(scale(w.value, 1), ones({1}));
  optimizer.step(0.1);
  return item(w.value);
}

TEST(L03_StepCounts, BiasCorrectionCountsUpdatesAndDropoutAttempts) {
  std::vector<double> first_update;
  std::vector<std::vector<double>> masks;
  for (const int64_t step : {1, 2, 9}) {  // as after attempts that made no update
    Context context("cpu", 3);
    Parameters parameters;
    copy_from_host(parameters.add("w", {1}, {}).value, {0});
    AdamW optimizer(parameters);
    context.device.set(&StepScalars::step, step);
    masks.push_back(to_host<double>(dropout(ones({1, 64}), 0.5)));
    first_update.push_back(after_update(parameters, optimizer));
    context.end_attempt();
    EXPECT_EQ(context.device.scalars().step, step + 1);
  }
  EXPECT_EQ(first_update, std::vector<double>(3, first_update[0]))
      << "the first update must not depend on the number of attempts";
  EXPECT_NEAR(first_update[0], -0.1, 1e-6) << "Adam's first step is the learning rate";
  EXPECT_NE(masks[0], masks[1]);
  EXPECT_NE(masks[1], masks[2]);
}

}  // namespace
}  // namespace gradus
