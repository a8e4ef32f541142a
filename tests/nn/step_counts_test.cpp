// Two counts that are not the same: attempts at an update, from which dropout draws, and updates that were
// made, which Adam's bias correction needs; and the random words of a micro-batch, which are its samples'
// own.
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/philox.h"
#include "src/core/rng.h"
#include "src/io/checkpoint.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "tests/devices.h"

namespace gradus {
namespace {

Tensor ones(const Shape& shape) {
  return from_host(current().device, std::vector<double>(shape.numel(), 1), shape, DType::F32, Kind::Data,
                   "ones");
}

TEST(L03_StepCounts, TheFirstForwardDrawsFromStepOne) {  // step 0 is initialization's and the data's
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

TEST(L03_StepCounts, AnUpdateEndsAnAttempt) {
  Context context("cpu", 3);
  Parameters parameters;
  copy_from_host(parameters.add("w", {1}, {}).value, {0});
  Sgd optimizer(parameters);
  for (int64_t made = 0; made < 3; ++made) {
    EXPECT_EQ(optimizer.scalars().updates, made);
    EXPECT_EQ(context.device.scalars().step, made + 1);
    after_update(parameters, optimizer);
    context.end_attempt();
  }
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
  EXPECT_EQ(first_update, std::vector<double>(3, first_update[0])) << "the first update is the first";
  EXPECT_NEAR(first_update[0], -0.1, 1e-6) << "Adam's first step is the learning rate";
  EXPECT_NE(masks[0], masks[1]);
  EXPECT_NE(masks[1], masks[2]);
}

TEST(L03_StepCounts, BothAreSavedAndLoaded) {
  const std::string path = testing::TempDir() + "gradus_step_counts.safetensors";
  {
    Context context("cpu", 3);
    Parameters parameters;
    copy_from_host(parameters.add("w", {1}, {}).value, {0});
    AdamW optimizer(parameters);
    context.device.set(&StepScalars::step, int64_t(17));
    after_update(parameters, optimizer);
    save_training(path, parameters, optimizer, {});
  }
  Context context("cpu", 3);
  Parameters parameters;
  parameters.add("w", {1}, {});
  AdamW optimizer(parameters);
  load_training(path, parameters, optimizer);
  EXPECT_EQ(context.device.scalars().step, 18);
  EXPECT_EQ(optimizer.scalars().updates, 1);
  std::filesystem::remove(path);
}

struct RandomOp {
  const char* name;
  Tensor (*f)(const Tensor&);  // of (B, 8, 12)
};
const RandomOp kRandomOps[] = {
    {"dropout", [](const Tensor& x) { return dropout(x, 0.5); }},
    {"attention_plain", [](const Tensor& x) { return attention_plain(x, 2, Mask::Causal, 0.5); }},
    {"attention_flash", [](const Tensor& x) { return attention_flash(x, 2, Mask::Causal, 0.5); }},
};

// Outputs and gradients of a batch of four, cut into parts whose forward passes all come before the backward
// passes, as a pipeline has them.
std::vector<double> in_parts(const RandomOp& op, const char* device, int64_t parts) {
  Context context(device, 11);
  const int64_t B = 4 / parts, elements = B * 8 * 12;
  std::vector<Tensor> inputs, outputs;
  std::vector<std::unique_ptr<Tape>> tapes;
  std::vector<Leaf> leaves(parts);
  Rng rng(1, 2);
  for (int64_t k = 0; k < parts; ++k) {
    std::vector<double> values(elements);
    for (double& v : values) v = rng.normal();
    inputs.push_back(from_host(context.device, values, {B, 8, 12}, DType::F32, Kind::Data, "x"));
    attach(inputs[k], leaves[k], "x");
    context.first_sample = k * B;
    tapes.push_back(std::make_unique<Tape>());
    outputs.push_back(op.f(inputs[k]));
  }
  std::vector<double> all;
  for (int64_t k = 0; k < parts; ++k) {
    tapes[k]->backward(outputs[k], ones(outputs[k].shape()));
    for (const double v : to_host<double>(outputs[k])) all.push_back(v);
  }
  for (const Leaf& leaf : leaves)
    for (const double v : to_host<double>(leaf.grad)) all.push_back(v);
  return all;
}

TEST(L03_StepCounts, AMicroBatchDrawsTheWordsOfItsSamplesWheneverItsBackwardRuns) {
  for (const char* device : devices_with_data())
    for (const RandomOp& op : kRandomOps) {
      const std::vector<double> whole = in_parts(op, device, 1);
      EXPECT_EQ(in_parts(op, device, 2), whole) << op.name << " on " << device;
      EXPECT_EQ(in_parts(op, device, 4), whole) << op.name << " on " << device;
    }
}

}  // namespace
}  // namespace gradus
