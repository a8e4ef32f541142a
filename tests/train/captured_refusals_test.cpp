// Steps that must not be replayed: steps that differ, and steps whose inputs, settings or buffers have
// changed.
#include <iterator>

#include "src/data/batch_loader.h"
#include "src/ops/ops.h"
#include "src/parallel/comm/cluster.h"
#include "tests/tape_testing.h"
#include "tests/train/captured_testing.h"

namespace gradus {
namespace {

using L16_NotReplayed = CapturedStepTest;

TEST_F(L16_NotReplayed, OtherInputsAreRefusedFromTheSecondRunOn) {
  run();
  t.inputs[0] = t.inputs[0].reshape({12});
  expect_part(refused(), "captured step: input 0 is [12]");
  t.inputs[0] = t.inputs[0].reshape({2, 6});
  record();
  const void* const place = t.inputs[0].in().p;  // the same address, with a different dtype
  t.inputs[0] = {};
  std::vector<Tensor> others;
  while (others.size() < 100 && !(t.inputs[0].defined() && t.inputs[0].in().p == place)) {
    others.push_back(t.inputs[0]);
    t.inputs[0] = Tensor(context.device, {2, 6}, DType::F32, Kind::Data, "inputs");
  }
  if (t.inputs[0].in().p != place) return;  // AddressSanitizer never returns an address twice
  const auto step = [this] { t.step(); };
  expect_part(refusal([&] { captured.run(t.inputs, step); }), "captured step: input 0 is [2,6] fp32");
}

TEST_F(L16_NotReplayed, OtherInputsAreRefused) {
  record();
  const std::vector<Tensor> good = t.inputs;
  t.inputs.pop_back();
  expect_part(refused(), "captured step: 1 inputs, but 2 in the first step");
  t.inputs = good;
  t.inputs[0] = Tensor(context.device, {1, 6}, DType::I32, Kind::Data, "inputs");
  expect_part(refused(), "captured step: input 0 is [1,6] int32, but in the first step it was [2,6] int32");
  t.inputs[0] = Tensor(context.device, {2, 6}, DType::I32, Kind::Data, "inputs");
  expect_part(refused(), "or at a different address");
  t.inputs[0] = good[0].reshape({12});
  expect_part(refused(), "input 0 is [12]");
  t.inputs = good;
  run();
}

TEST_F(L16_NotReplayed, OtherRecipesAreRefused) {
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
  expect_part(refused(), "loss scaling has begun since; record the step in a new CapturedStep");
  context.device.set(&StepScalars::growth_interval, int64_t(0));
  run();
  t.model.parameters.set_trainable(*t.model.parameters.begin(), false);
  expect_part(refused(), "parameters have been frozen or unfrozen since");
  CapturedStep anew;
  for (int i = 0; i < 4; ++i) t.fill(i), anew.run(t.inputs, [this] { t.step(); });
}

// Training or creating a different model does not change the step's settings; parameters of a different
// context cannot be frozen here.
TEST_F(L16_NotReplayed, ThawedParametersAndThoseOfOtherModels) {
  Parameter& p = *t.model.parameters.begin();
  t.model.parameters.set_trainable(p, false);
  t.optimizer = adamw(t.model.parameters);
  record();
  const Training other({.name = "other"});
  run();
  t.model.parameters.set_trainable(p, true);
  expect_part(refused(), "frozen or unfrozen");
  const Context elsewhere("cpu");
  expect_part(refusal([&] { t.model.parameters.set_trainable(p, false); }), "is of another context");
}

TEST_F(L16_NotReplayed, ARefusedRunIsNoAttempt) {
  record();
  const int64_t attempt = context.device.scalars().step;
  ++context.seed;
  refused();
  EXPECT_EQ(context.device.scalars().step, attempt);
  --context.seed;
  context.check_finite = true;
  expect_part(refused(), "--check");
}

TEST_F(L16_NotReplayed, AfterAnErrorRecordingBeginsAgain) {
  run(), run();
  EXPECT_EQ(refusal([&] { run([] { fail("no luck"); }); }), "no luck");
  run();
  EXPECT_FALSE(captured.replays()) << "one recording";
  run();
  EXPECT_TRUE(captured.replays());
  run();
}

TEST_F(L16_NotReplayed, AStepWithoutAnUpdateIsRefused) {
  const auto no_update = [this] {
    t.model.parameters.zero_grad();
    Tape tape;
    tape.backward(t.model.loss(t.inputs[0], t.inputs[1]));
    t.optimizer->clip_grad_norm(1);
  };
  expect_part(refusal([&] { run(no_update); }), "captured step: no optimizer has made an update in it");
}

// Tensors that only earlier recordings have read may be freed.
TEST_F(L16_NotReplayed, OnlyWhatTheLastRecordingReadMustStay) {
  const auto reads_the_loss_before = [this] {
    const Tensor before = t.loss.defined() ? scale(t.loss, 2) : Tensor();
    const Tensor keep = t.loss;
    t.step();
  };
  run(reads_the_loss_before), run(reads_the_loss_before);
  for (int i = 0; i < 2; ++i) EXPECT_NE(refusal([&] { run(reads_the_loss_before); }), "");
  refusal([&] { run(); });
  run();
  ASSERT_TRUE(captured.replays());
  run();
}

// A replay changes a tape's saved weights, like a step.
TEST_F(L16_NotReplayed, ATapeNoticesThatAReplayHasWritten) {
  record();
  Tape tape;
  const Tensor loss = t.model.loss(t.inputs[0], t.inputs[1]);
  run();
  expect_part(refusal([&] { tape.backward(loss); }), "was written to after the forward pass");
}

TEST_F(L16_NotReplayed, WhatIsWrittenOrBelongsToTheOptimizerMustBeThere) {
  auto out = std::make_unique<Tensor>(context.device, Shape{4}, DType::F32, Kind::Other, "out");
  const Tensor a(context.device, {4}, DType::F32, Kind::Other, "a");
  auto last = std::make_unique<Tensor>(context.device, Shape{4}, DType::F32, Kind::Other, "last");
  const auto writes = [&] {
    if (out) cast(a, out->set());
    if (last) cast(a, last->set());
    t.step();
  };
  while (!captured.replays()) run(writes);
  last.reset();
  t.fill(9);
  expect_part(refusal([&] { captured.run(t.inputs, writes); }),
              "captured step: 'last', which it reads or writes");
  CapturedStep again;
  for (int i = 0; i < 3; ++i) t.fill(i), again.run(t.inputs, writes);
  out.reset();
  expect_part(refusal([&] { again.run(t.inputs, writes); }),
              "captured step: 'out', which it reads or writes");
  const auto sgd = [](Parameters& p) { return std::make_unique<Sgd>(p); };  // without states
  Training plain({.name = "sgd", .make = sgd, .clips = false});
  CapturedStep third;
  for (int i = 0; i < 3; ++i) plain.fill(i), third.run(plain.inputs, [&] { plain.step(); });
  plain.optimizer = sgd(plain.model.parameters);
  plain.fill(9);
  expect_part(refusal([&] { third.run(plain.inputs, [&] { plain.step(); }); }), "'update scalars', which it");
}

// Also the tensor that was created last before the step.
TEST_F(L16_NotReplayed, TheTensorMadeLastMustStay) {
  const Tensor a(context.device, {4}, DType::F32, Kind::Other, "a");
  Tensor last;
  const auto reads = [&] { scale(add(a, last), 2), t.step(); };
  const void* place = nullptr;
  for (int s = 0; s < 3; ++s) {
    t.fill(s);
    last = {};
    last = Tensor(context.device, {4}, DType::F32, Kind::Other, "last");
    if (s == 0) place = last.in().p;
    if (last.in().p != place) return;  // AddressSanitizer never returns an address twice
    captured.run(t.inputs, reads);
  }
  ASSERT_TRUE(captured.replays());
  last = {};
  t.fill(9);
  expect_part(refusal([&] { captured.run(t.inputs, reads); }),
              "captured step: 'last', which it reads or writes, was freed");
}

TEST_F(L16_NotReplayed, NoStepWaitsForOtherRanks) {
  for (const char* call : {"barrier", "all_reduce", "split", "send"})
    expect_part(refusal([&] {
                  run_cluster({.ranks = 2}, [&](Comm& comm) {
                    Training mine({.name = "fp32"});
                    CapturedStep step;
                    const Tensor x(current().device, {4}, DType::F32, Kind::Other, "x");
                    mine.fill(0);
                    step.run(mine.inputs, [&] {
                      if (call[0] == 'b') comm.barrier();
                      if (call[0] == 'a') comm.all_reduce(x)->wait();
                      if (call[1] == 'p') comm.split("part", 0);
                      if (call[1] == 'e') comm.send(x, 1 - comm.rank())->wait();
                      mine.step();
                    });
                  });
                }),
                "a captured step cannot wait for other ranks");
}

// The host knows the device's scalars, also after a copy that was rejected.
TEST_F(L16_NotReplayed, ARefusedCopyIsNotRemembered) {
  run();
  const StepScalars before = context.device.scalars();
  expect_part(refusal([&] { run([this] { t.step(), start_loss_scaling(context.device, 8); }); }), "copy_in");
  EXPECT_EQ(context.device.host_scalars().loss_scale, before.loss_scale);
  expect_part(refusal([&] { run([this] { t.step(), t.step(); }); }), "copy_in");
  EXPECT_EQ(context.device.host_scalars().step, context.device.scalars().step);
}

TEST_F(L16_NotReplayed, WhatIsGoneIsNoticed) {
  record();
  t.model.parameters.drop_grad();
  expect_part(refused(), ".grad', which it reads or writes, was freed");
  CapturedStep second;
  const auto step = [this] { t.step(); };
  for (int i = 0; i < 3; ++i) t.fill(i), second.run(t.inputs, step);
  ASSERT_TRUE(second.replays());
  Tensor& w = t.model.parameters.begin()->value;  // its old memory belongs to a new tensor
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
  expect_part(refusal([&] { third.run(t.inputs, step); }), "which it reads or writes, was freed or has a");
}

using L14_NotReplayed = CapturedStepTest;
TEST_F(L14_NotReplayed, ABatchLoaderCopiesNothingInACapturedStep) {
  BatchLoader batches(2, 3, 1, [](int64_t, int64_t, int32_t*, int32_t*) {});
  CapturedStep other;
  const auto step = [&] { batches.next(), t.step(); };
  t.fill(0);
  other.run(t.inputs, step);  // the first run is an ordinary step
  expect_part(refusal([&] { other.run(t.inputs, step); }), "copy_in: a captured step cannot copy");
}

TEST_F(L16_NotReplayed, CopiesOtherRanksAndSecondAttemptsAreRefused) {
  const auto refused_in = [&](const std::function<void()>& step) {
    CapturedStep other;
    t.fill(0);
    const std::string at_first = refusal([&] { other.run(t.inputs, step); });
    return at_first.empty() ? refusal([&] { other.run(t.inputs, step); }) : at_first;
  };
  expect_part(refused_in([&] { t.step(), item(t.loss); }), "copy_out: a captured step cannot copy");
  expect_part(refused_in([&] { t.fill(1), t.step(); }),
              "copy_in: a captured step cannot copy from or to the host");
  expect_part(refused_in([&] { t.step(), t.step(); }), "copy_in: a captured step cannot copy");
  expect_part(refused_in([&] {
                CapturedStep inner;
                inner.run({}, [] {});
              }),
              "captured step: it runs inside a captured step");
  run();
  expect_part(refusal([&] { run([] { fail("no luck"); }); }), "no luck");
  record();
  run();
  Context other("cpu");
  expect_part(refusal([&] { captured.run({}, [] {}); }), "captured step: it belongs to a different context");
}

TEST_F(L16_NotReplayed, AStepWithoutALearningRateIsRefused) {
  Training fresh({.name = "fp32"});
  fresh.fill(0);
  fresh.optimizer->restore(3);  // a run that is loaded keeps the rate
  fresh.step();
  EXPECT_EQ(fresh.optimizer->scalars().updates, 4);
  EXPECT_EQ(fresh.optimizer->scalars().learning_rate, 0.01f);
  fresh.optimizer = adamw(fresh.model.parameters);
  const std::string text = refusal([&] { fresh.step(); });
  EXPECT_EQ(refusal([&] { fresh.optimizer->clip_grad_norm(1); }), "") << "no update may be half done";
  expect_part(text, "optimizer: step() without a learning rate, and set_learning_rate() was not called");
  EXPECT_EQ(fresh.optimizer->scalars().updates, 0);
}

}  // namespace
}  // namespace gradus
