// What must not be replayed: steps that are not alike, and steps whose inputs, recipe or buffers have
// changed.
#include "tests/train/captured_testing.h"

namespace gradus {
namespace {

using L16_NotAlike = CapturedStepTest;

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" should say: " << part;
}

TEST_F(L16_NotAlike, ABufferThatLivesBetweenStepsIsFoundOut) {
  const auto keeps_its_loss = [this] {
    const Tensor before = t.loss;
    t.step();
  };
  run(keeps_its_loss), run(keeps_its_loss);
  const std::string text = refusal([&] { run(keeps_its_loss); });
  expect_part(text, "captured step: kernel call ");
  expect_part(text, "with other arguments; every step must do the same at the same addresses");
  EXPECT_EQ(t.optimizer->scalars().updates, 3) << "the step was taken";
  EXPECT_FALSE(captured.replays());
  expect_part(refusal([&] { run(); }), "in the step before");
  run();
  EXPECT_TRUE(captured.replays()) << "two steps that are alike";
}

TEST_F(L16_NotAlike, GradientsThatAreNotEmptiedAreFoundOut) {
  int64_t called = 0;
  const auto adds_up = [&] {
    t.loss = {};
    Tape tape;
    t.loss = t.model.loss(t.inputs[0], t.inputs[1]);
    tape.backward(t.loss);
    t.optimizer->step();
    if (++called % 2 == 0) t.model.parameters.zero_grad();
  };
  run(adds_up), run(adds_up);
  const std::string text = refusal([&] { run(adds_up); });
  expect_part(text, "begin or end with empty gradients");
}

TEST_F(L16_NotAlike, MoreOrFewerCallsAreFoundOut) {
  int64_t called = 0;
  const auto more = [&] {
    t.step();
    if (++called == 3) t.loss = scale(t.loss, 2);
  };
  run(more), run(more);
  const std::string text = refusal([&] { run(more); });
  expect_part(text, "captured step: it made ");
  CapturedStep fewer;
  called = 0;
  const auto step = [&] {
    t.step();
    if (++called == 2) t.loss = scale(t.loss, 2);
  };
  fewer.run(t.inputs, step), fewer.run(t.inputs, step);
  expect_part(refusal([&] { fewer.run(t.inputs, step); }), "kernel calls, and ");
}

TEST_F(L16_NotAlike, OtherInputsAreRefused) {
  record();
  const std::vector<Tensor> good = t.inputs;
  t.inputs.pop_back();
  expect_part(refused(), "captured step: 1 inputs, and 2 in the first step");
  t.inputs = good;
  t.inputs[0] = Tensor(context.device, {1, 6}, DType::I32, Kind::Data, "inputs");
  expect_part(refused(), "captured step: input 0 is [1,6] int32, and in the first step was [2,6] int32");
  t.inputs[0] = Tensor(context.device, {2, 6}, DType::I32, Kind::Data, "inputs");
  expect_part(refused(), "in another place");
  t.inputs[0] = good[0].reshape({12});
  expect_part(refused(), "input 0 is [12]");
  t.inputs = good;
  run();
}

TEST_F(L16_NotAlike, OtherRecipesAreRefused) {
  record();
  ++context.seed;
  expect_part(refused(), "seed");
  --context.seed;
  ++context.first_sample;
  expect_part(refused(), "first sample");
  --context.first_sample;
  {
    const Evaluation evaluation;
    expect_part(refused(), "Evaluation");
  }
  run();
  start_loss_scaling(context.device, 1024);
  expect_part(refused(), "loss scaling has begun since; record it anew in another CapturedStep");
  context.device.set(&StepScalars::growth_interval, int64_t(0));
  run();
  t.model.parameters.set_trainable(*t.model.parameters.begin(), false);
  expect_part(refused(), "parameters have been frozen or unfrozen since");
  CapturedStep anew;
  for (int i = 0; i < 4; ++i) t.fill(i), anew.run(t.inputs, [this] { t.step(); });
}

TEST_F(L16_NotAlike, WhatIsGoneIsNoticed) {
  record();
  t.model.parameters.drop_grad();
  expect_part(refused(), ".grad', which it reads or writes, is gone");
  CapturedStep second;
  const auto step = [this] { t.step(); };
  for (int i = 0; i < 3; ++i) t.fill(i), second.run(t.inputs, step);
  ASSERT_TRUE(second.replays());
  Tensor& w = t.model.parameters.begin()->value;  // its old place is somebody else's
  const std::string name = w.storage().name();
  const Slot slot = w.slot;
  w = from_host(context.device, to_host<double>(w), w.shape(), w.dtype(), Kind::Weight, "moved");
  w.slot = slot;
  const Tensor there(context.device, w.shape(), w.dtype(), Kind::Other, "there");
  t.fill(9);
  expect_part(refusal([&] { second.run(t.inputs, step); }), "captured step: '" + name + "', which it");
  CapturedStep third;
  for (int i = 0; i < 3; ++i) t.fill(i), third.run(t.inputs, step);
  t.optimizer = adamw(t.model.parameters);
  t.fill(9);
  expect_part(refusal([&] { third.run(t.inputs, step); }), "which it reads or writes, is gone or in another");
}

TEST_F(L16_NotAlike, CopiesOtherRanksAndSecondAttemptsAreRefused) {
  const auto refused_in = [&](const std::function<void()>& step) {
    CapturedStep other;
    t.fill(0);
    const std::string at_first = refusal([&] { other.run(t.inputs, step); });
    return at_first.empty() ? refusal([&] { other.run(t.inputs, step); }) : at_first;
  };
  expect_part(refused_in([&] { t.step(), item(t.loss); }), "copy_out: a captured step copies nothing");
  expect_part(refused_in([&] { t.fill(1), t.step(); }),
              "copy_in: a captured step copies nothing from the host");
  expect_part(refused_in([&] { t.step(), t.step(); }), "copy_in: a captured step copies nothing");
  expect_part(refused_in([&] {
                CapturedStep inner;
                inner.run({}, [] {});
              }),
              "captured step: one within another");
  run();
  expect_part(refusal([&] { run([] { fail("no luck"); }); }), "no luck");
  record();
  run();
  Context other("cpu");
  expect_part(refusal([&] { captured.run({}, [] {}); }), "captured step: it belongs to another context");
}

TEST_F(L16_NotAlike, AStepWithoutALearningRateIsRefused) {
  Training fresh({.name = "fp32"});
  fresh.fill(0);
  fresh.optimizer->restore(0);
  const std::string text = refusal([&] { fresh.step(); });
  expect_part(text, "optimizer: step() without a learning rate, and set_learning_rate() was not called");
  EXPECT_EQ(fresh.optimizer->scalars().updates, 0);
}

}  // namespace
}  // namespace gradus
