// Loss scaling in training: a scale that is a power of two changes nothing, and an overflow skips one update.
#include <gtest/gtest.h>

#include "src/nn/transformer.h"
#include "src/optim/muon.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr float kScale = 65536;

TransformerConfig tiny(const char* recipe) {
  return {.vocab = 31,
          .context = 8,
          .layers = 2,
          .heads = 2,
          .channels = 16,
          .dropout = 0.1,
          .precision = precision_recipe(recipe)};
}

// Forward and backward of a step; with `overflow` one element of a gradient becomes infinite.
void gradients(Transformer& model, int64_t step, bool overflow = false) {
  const DummyBatch batch = dummy_batch(model.config, 4, model.config.context, uint64_t(step + 1));
  Tape tape;
  const Tensor loss = batch.loss(model);
  model.parameters.zero_grad();
  tape.backward(loss);
  if (!overflow) return;
  Tensor& grad = model.parameters.find("h.1.mlp.c_fc.weight").leaf.grad;
  std::vector<double> values = to_host<double>(grad);
  values[values.size() / 2] = INFINITY;
  copy_from_host(grad, values);
}

// Everything that an update may change.
std::vector<double> all_of(const Transformer& model, const Optimizer& optimizer) {
  std::vector<double> all;
  const auto append = [&](const Tensor& t) {
    for (const double x : to_host<double>(t)) all.push_back(x);
  };
  for (const Parameter& p : model.parameters) {
    append(p.value);
    if (p.master.defined()) append(p.master);
  }
  for (const Optimizer::State& s : optimizer.states)
    for (const Tensor& t : s.tensors) append(t);
  return all;
}

std::unique_ptr<Optimizer> optimizer_of(const std::string& name, Parameters& p) {
  if (name == "Sgd") return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f});
  if (name == "Adafactor") return std::make_unique<Adafactor>(p);
  if (name == "Muon") return std::make_unique<Muon>(p);
  return std::make_unique<AdamW>(p);
}

TEST(L09_LossScaling, InFp32APowerOfTwoChangesNoBit) {
  for (const char* device : devices_with_data())
    for (const double max_norm : {0.5, 0.0}) {
      if (std::string_view(device) == "emu" && max_norm == 0) continue;  // slow
      std::vector<std::vector<double>> ends;
      for (const bool scaled : {false, true}) {
        Context context(device, 3);
        Transformer model(tiny("fp32"));
        model.initialize(1);
        AdamW optimizer(model.parameters);
        if (scaled) start_loss_scaling(context.device, kScale, 2);  // the scale grows
        for (int64_t step = 0; step < 5; ++step) {
          gradients(model, step);
          optimizer.clip_grad_norm(max_norm);
          optimizer.step(1e-3);
        }
        EXPECT_EQ(optimizer.scalars().updates, 5);
        context.end_attempt();
        EXPECT_EQ(context.device.scalars().loss_scale, scaled ? 4 * kScale : 1);
        EXPECT_EQ(context.device.scalars().good_updates, scaled ? 1 : 0);
        ends.push_back(all_of(model, optimizer));
      }
      EXPECT_EQ(ends[0], ends[1]) << device << " " << max_norm;
    }
}

TEST(L09_LossScaling, AnOverflowSkipsOneUpdateAndHalvesTheScale) {
  for (const char* device : devices_with_data())
    for (const char* recipe : {"mixed-fp16", "zero", "half", "mixed", "fp32"})
      for (const char* name : {"AdamW", "Sgd", "Adafactor", "Muon"}) {
        const std::string what = std::string(device) + " " + recipe + " " + name;
        if (std::string_view(device) == "emu" && what != "emu zero AdamW" && what != "emu half Muon")
          continue;
        Context context(device, 3);
        Transformer model(tiny(recipe));
        model.initialize(1);
        const std::unique_ptr<Optimizer> optimizer = optimizer_of(name, model.parameters);
        start_loss_scaling(context.device, 1024, 3);
        int64_t made = 0;
        for (int64_t step = 0; step < 6; ++step) {
          const bool overflow = step == 0 || step == 3;
          gradients(model, step, overflow);
          const std::vector<double> before = all_of(model, *optimizer);
          optimizer->clip_grad_norm(1.0);
          optimizer->step(1e-3);
          made += !overflow;
          EXPECT_EQ(optimizer->scalars().skip, overflow) << what << " " << step;
          EXPECT_EQ(optimizer->scalars().updates, made) << what << " " << step;
          context.end_attempt();
          EXPECT_EQ(context.device.scalars().step, step + 2) << what << ": the step must count attempts";
          EXPECT_EQ(all_of(model, *optimizer) == before, overflow) << what << " " << step;
        }
        const StepScalars s = context.device.scalars();
        EXPECT_EQ(s.loss_scale, 256) << what;
        EXPECT_EQ(s.good_updates, 2) << what;
        for (const double x : all_of(model, *optimizer)) ASSERT_TRUE(std::isfinite(x)) << what;
      }
}

TEST(L09_LossScaling, WhatCannotBeIsRefused) {
  Context context("cpu", 3);
  for (const float scale : {0.0f, -1.0f, INFINITY, NAN})
    expect_refused("it must be positive", [&] { start_loss_scaling(context.device, scale); });
  expect_refused("the growth interval is 0", [&] { start_loss_scaling(context.device, 1, 0); });
  context.device.set(&StepScalars::good_updates, int64_t(2));
  start_loss_scaling(context.device, 8, 3);
  EXPECT_EQ(context.device.scalars().good_updates, 0) << "start_loss_scaling() must reset the count";
  Transformer model(tiny("mixed-fp16"));
  model.initialize(1);
  AdamW optimizer(model.parameters);
  start_loss_scaling(context.device);
  for (int64_t step = 0; step < 2; ++step) {
    gradients(model, step);
    expect_refused("call clip_grad_norm() before step()", [&] { optimizer.step(1e-3); });
    optimizer.clip_grad_norm(0);
    optimizer.step(1e-3);
  }
}

// A step must read nothing back from the device, because the host would wait for it. (Only the training loop
// itself may call item() of a loss.)
TEST(L09_LossScaling, NothingWaitsForTheDeviceInAStep) {
  for (const char* device : devices_with_data()) {
    Context context(device, 3);
    Transformer model(tiny("mixed-fp16"));
    model.initialize(1);
    AdamW optimizer(model.parameters);
    const auto waits_of_a_step = [&](bool clips) {
      const int64_t before = context.device.waits();
      gradients(model, 0);
      if (clips) optimizer.clip_grad_norm(1.0);
      optimizer.step(1e-3);
      return context.device.waits() - before;
    };
    EXPECT_EQ(waits_of_a_step(false), 0) << device;
    EXPECT_EQ(waits_of_a_step(true), 0) << device;
    for (const float scale : {65536.0f, 0x1p100f}) {  // the second one overflows
      start_loss_scaling(context.device, scale);
      EXPECT_EQ(waits_of_a_step(true), 0) << device << " " << scale;
      EXPECT_EQ(optimizer.scalars().skip, scale > 65536) << device;
    }
    const int64_t before = context.device.waits();
    context.device.scalars();
    context.device.synchronize();
    EXPECT_EQ(context.device.waits(), before + 2) << "scalars() and synchronize() must count as waits";
  }
}

}  // namespace
}  // namespace gradus
