// The numbers in a saved run: whole numbers, with nothing before or after them.
#include "src/io/save_load.h"
#include "src/nn/layers.h"
#include "src/tensor/context.h"
#include "tests/io/safetensors_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L03_SaveLoad : public SafetensorsTest {
 protected:
  L03_SaveLoad() {
    for (Parameter& p : parameters) copy_from_host(p.value, std::vector<double>(p.value.numel(), 0.5));
  }
  // Replaces a field of the file's metadata.
  void set(const std::string& field, const std::string& text) const {
    std::vector<std::string> data;
    std::vector<TensorEntry> entries;
    Metadata metadata;
    {
      const SafetensorsFile file(file_);
      metadata = file.metadata();
      metadata[field] = text;
      for (const SafetensorsFile::Tensor& t : file.tensors()) {
        file.read(t.name, t.dtype, t.shape, data.emplace_back(size_t(t.bytes), '\0').data());
        entries.push_back({t.name, t.dtype, t.shape, nullptr});
      }
    }
    for (size_t i = 0; i < entries.size(); ++i) entries[i].data = data[i].data();
    write_safetensors(file_, entries, metadata);
  }

  Context context{"cpu"};
  Parameters parameters;
  Linear layer{parameters, "layer", 2, 3};
  AdamW optimizer{parameters};
};

TEST_F(L03_SaveLoad, CountsAreWholeNumbers) {
  save_training(file_, parameters, optimizer);
  for (const std::string field : {"step", "updates"}) {
    for (const char* text :
         {"12abc", "12 ", " 12", "+12", "-1", "1e3", "12.0", "0x5", "", "9223372036854775808"}) {
      set(field, text);
      expect_refused("does not say the number of its " + field,
                     [&] { load_training(file_, parameters, optimizer); });
    }
    set(field, "12");
    EXPECT_EQ(load_training(file_, parameters, optimizer).at(field), "12");
  }
  EXPECT_EQ(context.device.scalars().step, 12);
}

TEST_F(L03_SaveLoad, AFileWithoutLossScalingEndsIt) {
  save_training(file_, parameters, optimizer);
  start_loss_scaling(context.device, 1024, 5);
  context.device.set(&StepScalars::good_updates, int64_t(3));
  load_training(file_, parameters, optimizer);
  EXPECT_EQ(context.device.scalars().loss_scale, 1);
  EXPECT_EQ(context.device.scalars().growth_interval, 0);
  EXPECT_EQ(context.device.scalars().good_updates, 0);
}

// On both sides of the initial scale, 65,536; before loading, the scale is a different one.
struct L09_SaveLoad : L03_SaveLoad {};
TEST_F(L09_SaveLoad, EveryLossScaleComesBackToTheBit) {
  for (const float scale : {0x1p-100f, 0.1f, 1.0f, 3000.5f, 65536.0f, 65540.5f, 1e9f, 0x1.fffffep127f}) {
    start_loss_scaling(context.device, scale, 5);
    context.device.set(&StepScalars::good_updates, int64_t(3));
    save_training(file_, parameters, optimizer);
    start_loss_scaling(context.device, 1024, 7);
    load_training(file_, parameters, optimizer);
    EXPECT_EQ(context.device.scalars().loss_scale, scale);
    EXPECT_EQ(context.device.scalars().growth_interval, 5);
    EXPECT_EQ(context.device.scalars().good_updates, 3);
  }
}

TEST_F(L09_SaveLoad, ASkippedUpdateIsForgottenByALoad) {
  const auto step = [&](double gradient) {
    for (Parameter& p : parameters) {
      p.leaf.grad = Tensor(context.device, p.value.shape(), DType::F32, Kind::Gradient, "gradient");
      copy_from_host(p.leaf.grad, std::vector<double>(size_t(p.value.numel()), gradient));
      p.leaf.written = true;
    }
    if (context.device.scalars().growth_interval > 0) optimizer.clip_grad_norm(0);
    optimizer.step(0.1);
  };
  const auto weight = [&] { return to_host<double>(parameters.begin()->value)[0]; };
  save_training(file_, parameters, optimizer);
  start_loss_scaling(context.device, 1024, 5);
  step(INFINITY);
  EXPECT_EQ(weight(), 0.5) << "the update must be skipped";
  load_training(file_, parameters, optimizer);
  EXPECT_EQ(optimizer.scalars().skip, 0);
  step(1);
  EXPECT_LT(weight(), 0.5);
}

TEST_F(L03_SaveLoad, AScaleThatCannotBeChangesNothing) {
  start_loss_scaling(context.device, 1024, 5);
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, std::string>>{{"loss_scale", "0"},
                                                        {"growth_interval", "0"},
                                                        {"loss_scale", "nan"},
                                                        {"step", "9223372036854775807"},
                                                        {"updates", "9223372036854775807"},
                                                        {"good_updates", "9223372036854775807"},
                                                        {"growth_interval", "9223372036854775807"}}) {
    save_training(file_, parameters, optimizer);
    set(field, value);
    Tensor& weight = parameters.begin()->value;
    copy_from_host(weight, std::vector<double>(weight.numel(), 0.25));
    expect_refused(value == "0" ? "both must be positive" : "does not say the number of its " + field,
                   [&] { load_training(file_, parameters, optimizer); });
    EXPECT_EQ(to_host<double>(weight)[0], 0.25) << field;
    copy_from_host(weight, std::vector<double>(weight.numel(), 0.5));
  }
}

// Two parameters, the second with a given name, size and precision, and an optimizer; all tensors are filled
// with one number.
struct Training {
  struct Updates : Optimizer {
    Updates(Parameters& p, const std::vector<std::string>& names)
        : Optimizer(p, [&](const Parameter& of) {
            States states;
            for (const std::string& name : names) states.push_back(like(of, name.c_str()));
            return states;
          }) {}
    void update(const std::vector<size_t>&, ParamList) override {}
  };
  explicit Training(double number, const char* second = "b", int64_t size = 3, const char* precision = "fp32",
                    std::vector<std::string> states = {"m", "v"}) {
    parameters.add("a", {2}, precision_recipe("fp32"));
    parameters.add(second, {size}, precision_recipe(precision));
    optimizer = std::make_unique<Updates>(parameters, states);
    for (const Tensor& t : tensors()) fill(t, number);
  }
  static void fill(Tensor t, double number) {
    copy_from_host(t, std::vector<double>(size_t(t.numel()), number));
  }
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all;
    for (const Parameter& p : parameters) all.push_back(p.kept());
    for (const Optimizer::State& s : optimizer->states)
      all.insert(all.end(), s.tensors.begin(), s.tensors.end());
    return all;
  }
  bool full_of(double number) const {
    for (const Tensor& t : tensors())
      if (to_host<double>(t) != std::vector<double>(size_t(t.numel()), number)) return false;
    return true;
  }
  Parameters parameters;
  std::unique_ptr<Optimizer> optimizer;
};

// The wrong tensor may be the last one.
TEST_F(L03_SaveLoad, NothingIsLoadedBeforeEverythingIsFoundToFit) {
  const Training saved(0.5);
  context.device.set(&StepScalars::step, int64_t(9));
  const auto refused = [&](const std::string& part, Training run) {
    expect_refused(part, [&] { load_training(file_, run.parameters, *run.optimizer); });
    EXPECT_TRUE(run.full_of(0.25)) << part;
    EXPECT_EQ(context.device.scalars().step, 9) << part;
    EXPECT_EQ(optimizer.scalars().updates, 0) << part;
  };
  save_training(file_, saved.parameters, *saved.optimizer);
  refused("tensor b is fp32 [3], expected fp32 [4]", Training(0.25, "b", 4));
  refused("tensor b is fp32 [3], expected fp16 [3]", Training(0.25, "b", 3, "half"));
  refused("there is no tensor c", Training(0.25, "c"));
  refused("there is no tensor optimizer.a.x", Training(0.25, "b", 3, "fp32", {"m", "x"}));
  refused("holds 6 tensors, this model needs 4", Training(0.25, "b", 3, "fp32", {"m"}));
  refused("holds 6 tensors, this model needs 8", Training(0.25, "b", 3, "fp32", {"m", "v", "x"}));
  save_weights(file_, saved.parameters);
  refused("does not say the number of its step; it holds weights only", Training(0.25));
  const auto weights_refused = [&](Training other) {
    EXPECT_THROW(load_weights(file_, other.parameters), Error);
    EXPECT_TRUE(other.full_of(0.25));
  };
  weights_refused(Training(0.25, "b", 4));
  weights_refused(Training(0.25, "c"));
  weights_refused(Training(0.25, "b", 3, "half"));
  Training more(0.25);
  more.parameters.add("c", {1}, precision_recipe("fp32"));
  expect_refused("holds 2 tensors, this model needs 3", [&] { load_weights(file_, more.parameters); });
  Training same(0.25);
  load_weights(file_, same.parameters);
  for (const Parameter& p : same.parameters) EXPECT_EQ(to_host<double>(p.value)[0], 0.5);
}

TEST_F(L03_SaveLoad, WhatTheCallerAddsComesBackAndTheCountsAreTheRuns) {
  const Training saved(0.5);
  context.device.set(&StepScalars::step, int64_t(12));
  saved.optimizer->restore(11);
  save_training(file_, saved.parameters, *saved.optimizer,
                {{"seed", "3"}, {"step", "99"}, {"updates", "98"}});
  context.device.set(&StepScalars::step, int64_t(1));
  Training loaded(0.25);
  EXPECT_EQ(load_training(file_, loaded.parameters, *loaded.optimizer),
            (Metadata{{"seed", "3"}, {"step", "12"}, {"updates", "11"}}));
  EXPECT_TRUE(loaded.full_of(0.5)) << "weights and states";
  EXPECT_EQ(context.device.scalars().step, 12);
  EXPECT_EQ(loaded.optimizer->scalars().updates, 11);
  save_weights(file_, saved.parameters, {{"note", "x"}});
  EXPECT_EQ(SafetensorsFile(file_).metadata(), (Metadata{{"note", "x"}}));
  save_weights(file_, saved.parameters);
  EXPECT_EQ(SafetensorsFile(file_).metadata(), Metadata{});
}

TEST_F(L03_SaveLoad, FrozenParametersAreSavedAndLoadedToo) {
  Training saved(0.5), loaded(0.25);
  for (Training* run : {&saved, &loaded}) {
    run->parameters.set_trainable(run->parameters.find("b"), false);
    run->optimizer = std::make_unique<AdamW>(run->parameters);
  }
  save_training(file_, saved.parameters, *saved.optimizer);
  std::string names;
  const SafetensorsFile file(file_);
  for (const auto& t : file.tensors()) names += t.name + " ";
  EXPECT_EQ(names, "a b optimizer.a.m optimizer.a.v ") << "a parameter that does not train has no states";
  load_training(file_, loaded.parameters, *loaded.optimizer);
  EXPECT_EQ(to_host<double>(loaded.parameters.find("b").value), std::vector<double>(3, 0.5));
  Training::fill(loaded.parameters.find("b").value, 0.25);
  save_weights(file_, saved.parameters);
  load_weights(file_, loaded.parameters);
  EXPECT_EQ(to_host<double>(loaded.parameters.find("b").value), std::vector<double>(3, 0.5));
}

}  // namespace
}  // namespace gradus
