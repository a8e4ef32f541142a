// Observers of kernel calls: they get each call of the table with its name, its cost and its arguments.
#include "src/tensor/kernel_calls.h"

#include <array>
#include <map>

#include "src/ops/run.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct Watcher : KernelObserver {
  std::vector<std::unique_ptr<KernelCall>> calls;
  void call(std::unique_ptr<KernelCall> call) override {
    make(*call);
    calls.push_back(std::move(call));
  }
  using KernelObserver::observe;
  using KernelObserver::stop;
};

struct L13_KernelCalls : ::testing::TestWithParam<const char*> {};
ON_DEVICES_WITH_DATA(L13_KernelCalls);

// Trains three steps and returns the losses.
std::vector<double> train() {
  Transformer model({.vocab = 20, .context = 5, .layers = 1, .heads = 2, .channels = 8, .dropout = 0.3});
  model.initialize(1);
  AdamW optimizer(model.parameters);
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    const DummyBatch batch = dummy_batch(model.config, 2, 5);
    Tape tape;
    const Tensor loss = batch.loss(model);
    tape.backward(loss);
    optimizer.clip_grad_norm(1);
    optimizer.step(0.01);
    model.parameters.zero_grad();
    losses.push_back(item(loss));
  }
  return losses;
}

TEST_P(L13_KernelCalls, AllOfAStepWithTheirCosts) {
  std::vector<double> plain;
  {
    const Context context(GetParam(), 3);
    plain = train();
  }
  Context context(GetParam(), 3);
  Watcher watcher;
  watcher.observe(context);
  context.device.meter().keep_trace();
  EXPECT_EQ(train(), plain) << "an observer must make the calls";
  std::map<Cost, int64_t> costs;
  std::map<std::string, int64_t> names;
  for (const auto& call : watcher.calls) ++costs[call->cost], ++names[call->entry];
  EXPECT_EQ(costs, context.device.meter().trace());
  for (const char* once : {"attention_plain_fwd", "attention_plain_bwd", "adamw", "begin_update"})
    EXPECT_EQ(names[once], 3) << once << ", once per step";
  watcher.stop();
  const size_t count = watcher.calls.size();
  train();
  EXPECT_EQ(watcher.calls.size(), count);
}

TEST_P(L13_KernelCalls, CallsAreEqualIfAllTheirArgumentsAre) {
  Context context(GetParam());
  Watcher watcher;
  watcher.observe(context);
  const Tensor a(context.device, {4}, DType::F32, Kind::Other, "a"),
      b(context.device, {4}, DType::F32, Kind::Other, "b");
  Tensor y(context.device, {4}, DType::F32, Kind::Other, "y");
  run(&Backend::add, cost::add, a, a.in(), b.in(), y.set());
  run(&Backend::add, cost::add, a, a.in(), b.in(), y.set());
  run(&Backend::add, cost::add, a, a.in(), b.in(), y.add());
  run(&Backend::add, cost::add, a, b.in(), b.in(), y.set());
  run(&Backend::multiply, cost::multiply, a, a.in(), b.in(), y.set());
  run(&Backend::scale, cost::scale, a, a.in(), y.set(), 2.0f);
  run(&Backend::scale, cost::scale, a, a.in(), y.set(), 3.0f);
  ASSERT_EQ(watcher.calls.size(), 7u);
  for (size_t i = 0; i < 7; ++i)
    for (size_t k = 0; k < 7; ++k)
      EXPECT_EQ(watcher.calls[i]->equals(*watcher.calls[k]), i == k || (i < 2 && k < 2)) << i << ", " << k;
  EXPECT_STREQ(watcher.calls[4]->entry, "multiply");
}

TEST_P(L13_KernelCalls, SeveralObserversSeeTheSameCallsAndEndInAnyOrder) {
  const auto add_once = [](Context& context) {
    const Tensor a(context.device, {4}, DType::F32, Kind::Other, "a");
    Tensor y = empty_like(a, "y");
    run(&Backend::fill, cost::fill, a, y.set(), 1.0);
    run(&Backend::add, cost::add, a, y.in(), y.in(), y.add());
    EXPECT_EQ(to_host<float>(y), std::vector<float>(4, 3.0f)) << "each call is made once";
  };
  for (int first_to_end = 0; first_to_end < 3; ++first_to_end) {
    Context context(GetParam());
    const Backend* const before = &context.device.backend();
    std::array<Watcher, 3> watchers;
    for (Watcher& w : watchers) w.observe(context);
    EXPECT_STREQ(context.device.name(), GetParam());
    add_once(context);
    watchers[size_t(first_to_end)].stop();
    add_once(context);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(watchers[size_t(i)].calls.size(), i == first_to_end ? 2u : 4u) << i << " of " << first_to_end;
    for (Watcher& w : watchers) w.stop();
    EXPECT_EQ(&context.device.backend(), before);
    EXPECT_EQ(context.kernel_observer, nullptr);
  }
}

TEST_P(L13_KernelCalls, AnErrorOfAKernelLeavesAllObserversAsTheyWere) {
  struct Refuses : Watcher {
    void call(std::unique_ptr<KernelCall>) override { fail("refused"); }
  };
  Context context(GetParam());
  Refuses first;
  Watcher second;
  first.observe(context);
  second.observe(context);
  Tensor y(context.device, {4}, DType::F32, Kind::Other, "y");
  expect_refused("refused", [&] { run(&Backend::fill, cost::fill, y, y.set(), 1.0); });
  EXPECT_EQ(context.kernel_observer, &second);
}

TEST_P(L13_KernelCalls, OneThatOutlivesItsContextObservesNothingMore) {
  Watcher watcher;
  {
    Context context(GetParam());
    watcher.observe(context);
  }
  Context other(GetParam());
  watcher.observe(other);
  EXPECT_EQ(other.kernel_observer, &watcher);
}

}  // namespace
}  // namespace gradus
