// Several optimizers in one context: each counts its own updates. And the state after an update that fails.
#include <gtest/gtest.h>

#include <filesystem>

#include "src/io/save_load.h"
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/optim/optim_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Numbers = std::vector<std::vector<double>>;

struct Model {
  Model() {
    for (const auto& [name, shape] : {std::pair("w", Shape{3, 5}), {"b", Shape{5}}, {"e", Shape{7, 2}}})
      copy_from_host(parameters.add(name, shape, {}).value, std::vector<double>(size_t(shape.numel()), 0.5));
  }
  // Sets the gradients of a step, multiplied by `size`.
  void set_gradients(int step, double size = 1) {
    for (Parameter& p : parameters) {
      std::vector<double> g(size_t(p.value.numel()));
      for (size_t i = 0; i < g.size(); ++i) g[i] = size * std::sin(double(step) * 7 + double(i) + 1);
      set_gradient(p, g);
      p.leaf.written = p.trainable();
    }
  }
  Numbers numbers() const {
    Numbers all;
    for (const Parameter& p : parameters) all.push_back(to_host<double>(p.value));
    return all;
  }
  Parameters parameters;
};

Numbers trained(int steps = 4) {
  Model m;
  AdamW optimizer(m.parameters);
  for (int step = 0; step < steps; ++step) m.set_gradients(step), optimizer.step(0.1);
  return m.numbers();
}

TEST(L03_SeveralOptimizers, TheSameExperimentTwiceInOneContextEndsTheSame) {
  for (const char* device : devices_with_data()) {
    Context context(device);
    const Numbers first = trained();
    EXPECT_EQ(trained(), first) << device << ": a new optimizer must begin its bias correction at 0 updates";
  }
}

TEST(L03_SeveralOptimizers, ClippingAndRatesOfOneAreNotTheOthers) {
  for (const char* device : devices_with_data()) {
    Context context(device);
    Model clipped, plain, alone_clipped, alone_plain;
    Sgd a(clipped.parameters), b(plain.parameters);
    clipped.set_gradients(1, 100), plain.set_gradients(2);
    a.clip_grad_norm(1);
    b.step(0.25);  // between the clip and its step
    a.step(0.5);
    Sgd c(alone_clipped.parameters), d(alone_plain.parameters);
    alone_clipped.set_gradients(1, 100), alone_plain.set_gradients(2);
    c.clip_grad_norm(1), c.step(0.5);
    d.step(0.25);
    EXPECT_EQ(clipped.numbers(), alone_clipped.numbers()) << device;
    EXPECT_EQ(plain.numbers(), alone_plain.numbers()) << device;
    EXPECT_GT(a.scalars().grad_norm, 50) << device;
    EXPECT_EQ(b.scalars().grad_norm, 0) << device << ": b did not clip, so it has no norm";
    EXPECT_EQ(a.scalars().learning_rate, 0.5f);
  }
}

// Two groups, each with its own rate and decay, give the same weights as two models that are trained whole.
TEST(L06_SeveralOptimizers, GroupsShareOutAModel) {
  const auto is_e = [](const Parameter& p) { return p.name == "e"; };
  const auto is_not_e = [](const Parameter& p) { return p.name != "e"; };
  Context context;
  Model grouped, as_e, as_rest;
  AdamW of_e(grouped.parameters, {.weight_decay = 0.5f}, is_e), rest(grouped.parameters, {}, is_not_e);
  AdamW all_e(as_e.parameters, {.weight_decay = 0.5f}), all_rest(as_rest.parameters);
  EXPECT_EQ(of_e.states.size(), 1u);
  EXPECT_EQ(rest.states.size(), 2u);
  for (int step = 0; step < 3; ++step) {
    for (Model* m : {&grouped, &as_e, &as_rest}) m->set_gradients(step);
    for (Optimizer* o : std::initializer_list<Optimizer*>{&of_e, &all_e}) o->step(0.1);
    for (Optimizer* o : std::initializer_list<Optimizer*>{&rest, &all_rest}) o->step(0.01);
  }
  EXPECT_EQ(grouped.numbers()[2], as_e.numbers()[2]);
  EXPECT_EQ(grouped.numbers()[0], as_rest.numbers()[0]);
  EXPECT_EQ(grouped.numbers()[1], as_rest.numbers()[1]);
  EXPECT_NE(as_e.numbers()[2], as_rest.numbers()[2]);
}

// As with PyTorch's GradScaler: each optimizer skips because of its own gradients, and the scale changes once
// for both.
TEST(L09_SeveralOptimizers, SkipIsEachOnesAndTheScaleChangesOncePerAttempt) {
  for (const char* device : devices_with_data()) {
    Context context(device);
    Model good, bad;
    AdamW a(good.parameters), b(bad.parameters);
    start_loss_scaling(context.device, 1024, 3);
    const auto attempt = [&](int step, double of_good, double of_bad) {
      const Tape tape;  // begins the attempt
      const double scale = context.device.scalars().loss_scale;
      good.set_gradients(step, of_good * scale), bad.set_gradients(step, of_bad * scale);
      a.clip_grad_norm(0), a.step(0.1);
      b.clip_grad_norm(0), b.step(0.1);
      EXPECT_EQ(context.device.scalars().loss_scale, scale) << "the scale must not change within the attempt";
      context.end_attempt();
      context.end_attempt();  // has no effect: the attempt has ended
    };
    attempt(0, 1, INFINITY);
    EXPECT_EQ(a.scalars().skip, 0) << device;
    EXPECT_EQ(b.scalars().skip, 1) << device;
    EXPECT_EQ(context.device.scalars().loss_scale, 512) << device;
    attempt(1, INFINITY, INFINITY);
    EXPECT_EQ(context.device.scalars().loss_scale, 256)
        << device << ": the scale must be halved once for both";
    for (int step = 2; step < 5; ++step) attempt(step, 1, 1);
    EXPECT_EQ(context.device.scalars().loss_scale, 512)
        << device << ": the growth interval must count three attempts, not six updates";
    EXPECT_EQ(context.device.scalars().step, 6) << device << ": the step must count attempts";
    EXPECT_EQ(a.scalars().updates, 4) << device;
    EXPECT_EQ(b.scalars().updates, 3) << device;
    const Numbers left = bad.numbers();
    for (const double x : left[0]) EXPECT_TRUE(std::isfinite(x)) << device;
  }
}

// Loading a run must also reset the result of an earlier update, which was skipped.
TEST(L09_SeveralOptimizers, ARunThatIsLoadedAfterASkippedUpdateTrains) {
  const std::string path = testing::TempDir() + "after_skip.safetensors";
  for (const char* device : devices_with_data())
    for (const bool file_is_scaled : {false, true}) {
      Context context(device);
      Model m;
      AdamW optimizer(m.parameters);
      if (file_is_scaled) start_loss_scaling(context.device, 8);
      save_training(path, m.parameters, optimizer);
      start_loss_scaling(context.device, 1024);
      m.set_gradients(0, INFINITY);
      optimizer.clip_grad_norm(0), optimizer.step(0.1);
      EXPECT_EQ(optimizer.scalars().skip, 1);
      load_training(path, m.parameters, optimizer);
      const Numbers before = m.numbers();
      m.set_gradients(1);
      if (file_is_scaled) optimizer.clip_grad_norm(0);
      optimizer.step(0.1);
      EXPECT_NE(m.numbers(), before) << device << ": the step after loading must not be skipped";
      EXPECT_EQ(optimizer.scalars().updates, 1) << device;
      context.end_attempt();
      EXPECT_EQ(context.device.scalars().loss_scale, file_is_scaled ? 8 : 1)
          << device << ": the overflow from before loading must not count";
    }
  std::filesystem::remove(path);
}

TEST(L06_SeveralOptimizers, WhatIsFrozenStaysAndWhatHasNoStatesIsRefused) {
  Context context;
  Model m;
  m.parameters.set_trainable(m.parameters.find("e"), false);
  Sgd plain(m.parameters);
  m.set_gradients(0);
  plain.step(0.1);
  const Numbers before = m.numbers();
  m.parameters.set_trainable(m.parameters.find("b"), false);
  m.set_gradients(1), m.parameters.find("b").leaf.written = true;  // as after an earlier backward pass
  plain.clip_grad_norm(0);
  const double norm = plain.scalars().grad_norm;
  plain.step(0.1);
  EXPECT_EQ(m.numbers()[1], before[1]) << "a parameter that was frozen must not change";
  EXPECT_NE(m.numbers()[0], before[0]);
  double squares = 0;
  for (const double g : to_host<double>(m.parameters.find("w").leaf.grad)) squares += g * g;
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-6) << "the norm must be that of the updated parameters";
  m.parameters.set_trainable(m.parameters.find("e"), true);
  m.set_gradients(2);
  expect_refused("'e' trains, but was frozen when the optimizer was made", [&] { plain.step(0.1); });
  EXPECT_EQ(plain.scalars().updates, 2);
}

TEST(L03_SeveralOptimizers, AnOptimizerMayEndAfterItsModel) {
  Context context;
  std::optional<Model> model(std::in_place);
  AdamW optimizer(model->parameters);
  model->set_gradients(0), optimizer.step(0.1);
  model.reset();
  EXPECT_EQ(optimizer.scalars().updates, 1);
}

// A kernel table whose SGD update fails if `fails` is set.
bool fails = false;
void failing_sgd(const Ctx& c, ParamList l, SgdArgs a) {
  check(!fails, "the kernel failed");
  cpu_backend().sgd(c, l, a);
}

TEST(L06_SeveralOptimizers, AfterAnUpdateThatFailedStepsAreRefusedUntilALoad) {
  const std::string path = testing::TempDir() + "failed_update.safetensors";
  Context context;
  Backend table = cpu_backend();
  table.sgd = failing_sgd;
  context.device.use(table);
  Model m;
  Sgd optimizer(m.parameters, {.momentum = 0.9f});
  m.set_gradients(0), optimizer.step(0.1);
  save_training(path, m.parameters, optimizer);
  m.set_gradients(1), fails = true;
  expect_refused("the kernel failed", [&] { optimizer.step(0.1); });
  fails = false;
  for (int i = 0; i < 2; ++i) {
    expect_refused("an error ended an earlier update", [&] { optimizer.step(0.1); });
    expect_refused("an error ended an earlier update", [&] { optimizer.clip_grad_norm(1); });
  }
  load_training(path, m.parameters, optimizer);
  m.set_gradients(1), optimizer.step(0.1);
  EXPECT_EQ(optimizer.scalars().updates, 2);
  Model whole;
  Sgd never_failed(whole.parameters, {.momentum = 0.9f});
  for (int step = 0; step < 2; ++step) whole.set_gradients(step), never_failed.step(0.1);
  EXPECT_EQ(m.numbers(), whole.numbers());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace gradus
