// Steps that must not be replayed: steps that differ, and steps whose inputs, settings or buffers have
// changed.
#include <iterator>

#include "src/ops/ops.h"
#include "tests/tape_testing.h"
#include "tests/train/captured_testing.h"

namespace gradus {
namespace {

using L16_NotAlike = CapturedStepTest;

TEST_F(L16_NotAlike, ABufferThatLivesBetweenStepsIsFoundOut) {
  const auto keeps_its_loss = [this] {
    const Tensor before = t.loss;
    t.step();
  };
  run(keeps_its_loss), run(keeps_its_loss);
  const std::string text = refusal([&] { run(keeps_its_loss); });
  expect_part(text, "captured step: kernel call ");
  expect_part(text, "with different arguments; every step must do the same at the same addresses");
  EXPECT_EQ(t.optimizer->scalars().updates, 3) << "the step must have run";
  EXPECT_FALSE(captured.replays());
  expect_part(refusal([&] { run(); }), "in the step before");
  run();
  EXPECT_TRUE(captured.replays()) << "two equal steps";
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
  expect_part(refusal([&] { fewer.run(t.inputs, step); }), "kernel calls, but ");
}

TEST_F(L16_NotAlike, TheFirstDifferenceIsSaid) {
  Tensor out(context.device, {4}, DType::F32, Kind::Other, "out");
  const Tensor table(context.device, {3, 4}, DType::F32, Kind::Other, "table"), id = ids_of({1}, {1});
  int64_t called = 0;
  const auto step = [&] {
    if (++called == 3)
      embedding(table, id);
    else
      scale(out, 2);
    t.step();
  };
  run(step), run(step);
  const std::string text = refusal([&] { run(step); });
  expect_part(
      text,
      "kernel call 1 is embedding_fwd in 'embedding', but in the step before it was scale in 'scale'; every");
}

// In lists of parameters all items count.
TEST_F(L16_NotAlike, AnotherFlagOfOneParameterIsFoundOut) {
  bool& decays = std::next(t.model.parameters.begin(), 5)->decay;
  const auto step = [&] { decays = !decays, t.step(); };
  run(step), run(step);
  expect_part(
      refusal([&] { run(step); }),
      "is adamw in 'update', but in the step before it was adamw in 'update' with different arguments");
}

}  // namespace
}  // namespace gradus
