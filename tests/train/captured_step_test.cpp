// Captured steps: replays are bitwise equal to ordinary steps.
#include <map>

#include "src/train/dummy.h"
#include "tests/train/captured_testing.h"
#include "tests/train/profiler_testing.h"

namespace gradus {
namespace {

struct Ended {
  Numbers weights;
  std::vector<double> losses;
  int64_t updates, attempt;
  bool operator==(const Ended&) const = default;
};
constexpr int64_t kSteps = 8;
Ended train(const char* device, const Way& kind, const std::function<void(Training&, int64_t)>& step) {
  Context context(device, 3);
  Training t(kind);
  Ended end{{}, {}, 0, 0};
  for (int64_t s = 0; s < kSteps; ++s) {
    t.fill(s);
    step(t, s);
    end.losses.push_back(item(t.loss));
  }
  end.weights = t.numbers();
  end.updates = t.optimizer->scalars().updates, end.attempt = context.device.scalars().step;
  return end;
}

struct L16_CapturedStep : ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Kinds, L16_CapturedStep, ::testing::ValuesIn(kWays),
                         [](const auto& info) { return info.param.name; });

TEST_P(L16_CapturedStep, ReplaysAreTheStepsToTheBit) {
  for (const char* device : devices_with_data()) {
    const Ended plain = train(device, GetParam(), [](Training& t, int64_t) { t.step(); });
    int64_t called = 0;
    const Ended replayed = train(device, GetParam(), [&](Training& t, int64_t s) {
      if (s == 0) t.captured = std::make_unique<CapturedStep>();
      t.captured->run(t.inputs, [&] { t.step(), ++called; });
      EXPECT_EQ(t.captured->replays(), s >= 2) << "the calls of a step differ from those of the step before";
    });
    EXPECT_EQ(called, 3) << device;
    EXPECT_TRUE(replayed == plain) << device << ": losses " << ::testing::PrintToString(replayed.losses)
                                   << ", " << ::testing::PrintToString(plain.losses);
    if (GetParam().recipe == "mixed-fp16") {
      EXPECT_LT(plain.updates, kSteps) << "some updates must be skipped";
      EXPECT_GT(plain.updates, 0);
    }
  }
}

TEST_P(L16_CapturedStep, ReplaysCountWhatTheStepsDo) {
  Context context("meta", 3);
  Training t(GetParam());
  CapturedStep captured;
  Meter& meter = context.device.meter();
  std::map<Cost, int64_t> trace;
  for (int64_t s = 0; s < 6; ++s) {
    t.fill(s);
    meter.reset_totals(), meter.reset_peak();
    captured.run(t.inputs, [&] { t.step(); });
    if (s == 2) trace = meter.trace();
    if (s > 2) {
      EXPECT_EQ(meter.trace(), trace) << "step " << s;
    }
    EXPECT_EQ(t.optimizer->scalars().updates, s + 1);
  }
  EXPECT_GT(captured.calls().size(), 50u);
}

// The counts of the host, per optimizer; and the times of kernels, if they are recorded.
TEST(L16_CapturedSteps, EachOptimizerCountsItsUpdates) {
  for (const char* device : {"cpu", "meta"}) {
    Context context(device, 3);
    Training t({.name = "fp32"});
    const auto is_matrix = [](const Parameter& p) { return p.decay; };
    t.optimizer = std::make_unique<AdamW>(t.model.parameters, AdamWArgs{}, is_matrix);
    AdamW other(t.model.parameters, {}, [](const Parameter& p) { return !p.decay; });
    other.set_learning_rate(0.25);
    CapturedStep captured;
    context.device.meter().keep_times();
    for (int64_t s = 0; s < 5; ++s) {
      t.fill(s);
      context.device.meter().reset_totals();
      captured.run(t.inputs, [&] {
        t.loss = {};
        Tape tape;
        t.loss = t.model.loss(t.inputs[0], t.inputs[1]);
        tape.backward(t.loss);
        t.optimizer->step(), other.step();
        t.model.parameters.zero_grad();
      });
      EXPECT_GT(context.device.meter().totals(OpClass::Contraction).seconds, 0) << device << ", step " << s;
    }
    EXPECT_EQ(t.optimizer->scalars().updates, 5) << device;
    EXPECT_EQ(other.scalars().updates, 5) << device;
    EXPECT_EQ(other.scalars().learning_rate, 0.25f) << device;
  }
}

// GPT-2 124M: blocks of all sizes, whose segments are allocated as they are needed.
TEST(L16_CapturedSteps, OfALargeModel) {
  for (const Keep keep : {Keep::All, Keep::Input, Keep::LessAttention}) {
    Context context("meta", 3);
    TransformerConfig config = transformer_config("gpt2");
    config.precision = precision_recipe("mixed");
    Transformer model(config);
    model.segments.assign(12, {1, keep});
    AdamW optimizer(model.parameters);
    optimizer.set_learning_rate(1e-3);
    const DummyBatch batch = dummy_batch(config, 4, 256);
    const auto step = [&] {
      Tape tape;
      tape.backward(batch.loss(model));
      optimizer.clip_grad_norm(1);
      optimizer.step();
      model.parameters.zero_grad();
    };
    step(), step();
    const int64_t reserved = context.device.meter().reserved();
    context.device.allocator().empty_cache();
    CapturedStep captured;
    for (int i = 0; i < 3; ++i) captured.run({batch.ids, batch.targets}, step);
    EXPECT_TRUE(captured.replays());
    EXPECT_LE(double(context.device.meter().reserved()), 1.1 * double(reserved)) << "10 % more at most";
  }
}

using L16_CapturedStepBeside = CapturedStepTest;

// Work between two replays does not use their memory: other steps, an evaluation, a second captured step.
TEST_F(L16_CapturedStepBeside, WhatComesBetweenReplaysChangesNothing) {
  const Ended plain = train("cpu", t.kind, [](Training& of, int64_t) { of.step(); });
  Training other({.name = "other"}, 2);
  CapturedStep other_captured;
  std::vector<Tensor> kept;
  std::vector<double> losses;
  Context elsewhere("cpu", 9);
  for (int64_t s = 0; s < kSteps; ++s) {
    context.make_current();
    const int64_t attempt = context.device.host_scalars().step;
    run();
    losses.push_back(item(t.loss));
    other.fill(s);
    context.stepped = false;  // a different model's part of the attempt
    other_captured.run(other.inputs, [&] { other.step(); });
    EXPECT_LE(context.device.host_scalars().step, attempt + 1);
    kept.emplace_back(context.device, Shape{1000 * (s + 1)}, DType::F32, Kind::Other, "kept");
    const Evaluation evaluation;
    t.model.loss(t.inputs[0], t.inputs[1]);
    context.device.allocator().empty_cache();
    elsewhere.make_current();
    const Tensor x(elsewhere.device, {100}, DType::F32, Kind::Other, "elsewhere");
  }
  context.make_current();
  EXPECT_EQ(losses, plain.losses);
  EXPECT_EQ(t.numbers(), plain.weights);
}

TEST_F(L16_CapturedStepBeside, AProfilerSeesAReplayAsOneRangeOfItsKernels) {
  record();
  Profiler profiler(context);
  t.fill(9);
  profiler.begin();
  captured.run(t.inputs, [] {});
  profiler.end();
  EXPECT_EQ(count_of(paths(profiler, ProfileTrack::Program), "/captured step"), 1);
  std::vector<std::string> kernels;
  for (const auto& recorded : captured.calls())
    kernels.push_back("/captured step/" + std::string(recorded.call->entry));
  EXPECT_EQ(paths(profiler, ProfileTrack::Kernels), kernels);
}

TEST_F(L16_CapturedStepBeside, ItsMemoryIsTheContextsAgain) {
  record();
  t.loss = {};
  const int64_t reserved = context.device.meter().reserved();
  context.device.allocator().empty_cache();
  const int64_t kept = context.device.meter().reserved();
  {
    const CapturedStep another;
    EXPECT_EQ(context.device.meter().reserved(), kept) << "a captured step needs no memory before it runs";
  }
  EXPECT_GT(kept, reserved / 4) << "the pool must keep its memory";
  std::optional<CapturedStep> ended(std::in_place);
  for (int i = 0; i < 3; ++i) t.fill(i), ended->run(t.inputs, [this] { t.step(); });
  const int64_t with_both = context.device.meter().reserved();
  ended.reset();
  EXPECT_TRUE(std::isfinite(item(t.loss))) << "memory in use must stay";
  t.loss = {};
  context.device.allocator().empty_cache();
  EXPECT_LT(context.device.meter().reserved(), with_both);
}

}  // namespace
}  // namespace gradus
