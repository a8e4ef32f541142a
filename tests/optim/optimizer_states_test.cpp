// Common properties of all optimizers: the declared states, resumed runs that are bitwise equal, refused
// updates that change nothing; and optimizers that leave parameters to AdamW update them as AdamW does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "src/io/save_load.h"
#include "src/optim/muon.h"
#include "tests/devices.h"
#include "tests/optim/optim_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Make = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
template <class O, class Args>
Make maker(const Args& args) {
  return [args](Parameters& p) { return std::make_unique<O>(p, args); };
}
const AdamWArgs kAdamW{.beta1 = 0.8f, .beta2 = 0.95f, .eps = 1e-6f, .weight_decay = 0.1f};
const MuonArgs kMuon{.weight_decay = 0.2f, .others = kAdamW};
const std::map<std::string, Make>& optimizers() {
  static const std::map<std::string, Make> all{
      {"sgd", maker<Sgd>(SgdArgs{})},
      {"momentum", maker<Sgd>(SgdArgs{.momentum = 0.9f})},
      {"nesterov", maker<Sgd>(SgdArgs{.momentum = 0.9f, .nesterov = true})},
      {"adamw", maker<AdamW>(kAdamW)},
      {"adafactor", maker<Adafactor>(AdafactorArgs{.weight_decay = 0.1f})},
      {"adafactor_given", maker<Adafactor>(AdafactorArgs{.step_size = StepSize::Given, .most = 0.5f})},
      {"muon", maker<Muon>(kMuon)}};
  return all;
}
std::vector<std::pair<const char*, Precision>> precisions() {
  return {{"fp32", uniform(DType::F32)}, {"mixed", mixed(DType::BF16)}, {"half", uniform(DType::F16)}};
}

// Wide and tall matrices of blocks, and parameters that Muon does not update; "frozen" does not train.
struct Training {
  Training(const Precision& precision, const Make& make) {
    uint64_t stream = 0;
    for (const auto& [name, shape] :
         std::initializer_list<std::pair<const char*, Shape>>{{"h.0.wide", {5, 33}},
                                                              {"h.0.bias", {257}},
                                                              {"wte", {31, 7}},
                                                              {"h.1.tall", {19, 3}},
                                                              {"frozen", {2}}}) {
      Parameter& p = parameters.add(name, shape, precision);
      Tensor to = p.kept();
      copy_from_host(to, normal(to.numel(), ++stream));
      p.round_master();
    }
    parameters.set_trainable(parameters.find("frozen"), false);
    optimizer = make(parameters);
  }
  void set_gradients(int step) {
    uint64_t stream = 100 * uint64_t(step);
    for (Parameter& p : parameters) set_gradient(p, normal(p.value.numel(), ++stream, 0.1));
  }
  void update(int step) {
    set_gradients(step);
    if (step % 2 == 0) optimizer->clip_grad_norm(1);
    optimizer->step(0.1 / step);
  }
  // All weights, master copies and states, by name.
  std::map<std::string, std::vector<double>> numbers() const {
    std::map<std::string, std::vector<double>> all;
    for (const Parameter& p : parameters) {
      all[p.name] = to_host<double>(p.value);
      if (p.master.defined()) all[p.name + ".master"] = to_host<double>(p.master);
    }
    for (const Optimizer::State& s : optimizer->states)
      for (const Tensor& t : s.tensors) all[t.storage().name()] = to_host<double>(t);
    return all;
  }

  Parameters parameters;
  std::unique_ptr<Optimizer> optimizer;
};

struct L06_Optim : ::testing::TestWithParam<const char*> {};
ON_DEVICES_WITH_DATA(L06_Optim);

TEST_P(L06_Optim, StatesHaveNamesShapesKindsAndDtypes) {
  const auto of = [](const std::string& optimizer, const Parameter& p) -> std::map<std::string, Shape> {
    const Shape shape = p.value.shape();
    if (optimizer == "sgd") return {};
    if (optimizer == "momentum" || optimizer == "nesterov") return {{"momentum", shape}};
    if (optimizer == "muon" && p.name.starts_with("h.") && shape.rank() == 2) return {{"momentum", shape}};
    if (optimizer == "adamw" || optimizer == "muon") return {{"m", shape}, {"v", shape}};
    if (shape.rank() == 1) return {{"squares", shape}};
    return {{"columns", {shape[1]}}, {"rows", {shape[0]}}};
  };
  std::vector<std::pair<const char*, Precision>> all = precisions();
  all.push_back({"states in fp32", {DType::BF16, DType::BF16, DType::F32, true}});
  all.push_back({"states in fp16", {DType::F16, DType::F32, DType::F16, false}});
  for (const auto& [recipe, precision] : all)
    for (const auto& [name, make] : optimizers()) {
      Context context(GetParam());
      const Training run(precision, make);
      ASSERT_EQ(run.optimizer->states.size(), 4u) << name << ": only parameters that train may have states";
      for (const Optimizer::State& s : run.optimizer->states) {
        const std::map<std::string, Shape> want = of(name, *s.parameter);
        ASSERT_EQ(s.tensors.size(), want.size()) << name << ", " << s.parameter->name;
        auto next = want.begin();  // names in alphabetical order: m, v; columns, rows
        for (const Tensor& t : s.tensors) {
          const auto& [state, shape] = *next++;
          const std::string what = std::string(recipe) + ", " + name + ": " + t.storage().name();
          EXPECT_EQ(t.storage().name(), s.parameter->name + "." + state);
          EXPECT_EQ(t.storage().kind(), Kind::Optimizer) << what;
          EXPECT_EQ(t.shape(), shape) << what;
          EXPECT_EQ(t.dtype(), name.starts_with("adafactor") ? DType::F32 : precision.state) << what;
          EXPECT_EQ(to_host<double>(t), std::vector<double>(size_t(t.numel()), 0.0)) << what;
        }
      }
    }
}

TEST_P(L06_Optim, ALoadedRunGoesOnAsIfItHadNotStopped) {
  const std::string path = ::testing::TempDir() + "states-" + std::to_string(::getpid()) + ".safetensors";
  for (const auto& [recipe, precision] : precisions())
    for (const auto& [name, make] : optimizers()) {
      std::map<std::string, std::vector<double>> at_once, loaded;
      {
        Context context(GetParam());
        Training run(precision, make);
        for (int step = 1; step <= 4; ++step) {
          run.update(step);
          if (step == 2) save_training(path, run.parameters, *run.optimizer);
        }
        at_once = run.numbers();
      }
      {
        Context context(GetParam());
        Training run(precision, make);
        run.update(5);  // load_training must overwrite this
        load_training(path, run.parameters, *run.optimizer);
        EXPECT_EQ(run.optimizer->scalars().updates, 2);
        for (int step = 3; step <= 4; ++step) run.update(step);
        loaded = run.numbers();
      }
      for (const auto& [what, numbers] : at_once)
        ASSERT_EQ(loaded[what], numbers) << recipe << ", " << name << ": " << what;
      EXPECT_EQ(loaded.size(), at_once.size());
    }
  std::filesystem::remove(path);
}

// Compared with AdamW on the same parameters and gradients, clipped by the norm of all gradients.
TEST_P(L06_Optim, WhatMuonIsNotForGoesByAdamW) {
  for (const auto& [recipe, precision] : precisions()) {
    std::map<std::string, std::vector<double>> after[2];
    for (const char* optimizer : {"muon", "adamw"}) {
      Context context(GetParam());
      Training run(precision, optimizers().at(optimizer));
      const auto before = run.numbers();
      for (int step = 1; step <= 4; ++step) run.update(step);
      after[std::string_view(optimizer) == "adamw"] = run.numbers();
      EXPECT_NE(before.at("h.0.wide"), run.numbers().at("h.0.wide"));
    }
    for (const std::string name : {"h.0.bias", "wte"})
      for (const char* part : {"", ".master", ".m", ".v"})
        EXPECT_EQ(after[0][name + part], after[1][name + part]) << recipe << ": " << name << part;
    EXPECT_NE(after[0]["h.0.wide"], after[1]["h.0.wide"]) << recipe;
  }
}

// An optimizer updates a master copy exactly as it updates weights in fp32, with equal gradients and states.
TEST_P(L06_Optim, AMasterCopyIsUpdatedAsWeightsInFp32Are) {
  for (const auto& [name, make] : optimizers()) {
    std::map<std::string, std::vector<double>> fp32, with_master;
    for (const bool master : {false, true}) {
      Context context(GetParam());
      Training run(master ? mixed(DType::BF16) : uniform(DType::F32), make);
      for (int step = 1; step <= 3; ++step) run.update(step);
      (master ? with_master : fp32) = run.numbers();
    }
    for (const auto& [what, numbers] : fp32)
      EXPECT_EQ(numbers, with_master[with_master.contains(what + ".master") ? what + ".master" : what])
          << name << ": " << what;
  }
}

TEST_P(L06_Optim, AnUpdateThatIsRefusedChangesNothing) {
  for (const auto& [name, make] : optimizers())
    for (const char* without : {"h.0.wide", "wte", "h.1.tall"}) {
      Context context(GetParam());
      Training run(mixed(DType::BF16), make);
      run.update(1);
      run.set_gradients(2);
      run.parameters.find(without).leaf.zero();
      const auto before = run.numbers();
      const UpdateScalars scalars = run.optimizer->scalars();
      expect_refused("'" + std::string(without) + "' has no gradient", [&] { run.optimizer->step(0.5); });
      EXPECT_EQ(run.numbers(), before) << name;
      EXPECT_EQ(run.optimizer->scalars().updates, scalars.updates) << name;
      context.end_attempt();
      EXPECT_EQ(context.device.scalars().step, 2) << name;
      run.update(3);
      EXPECT_NE(run.numbers(), before) << name;
      EXPECT_EQ(run.optimizer->scalars().updates, scalars.updates + 1) << name;
    }
}

}  // namespace
}  // namespace gradus
