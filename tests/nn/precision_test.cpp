// The recipes: their names; bytes per parameter as published, the same on every device; the effect of a
// master copy.
#include <filesystem>

#include "src/io/save_load.h"
#include "tests/devices.h"
#include "tests/nn/families_testing.h"

namespace gradus {
namespace {

TransformerConfig tiny(const Precision& precision) {
  return {.vocab = 65, .context = 24, .layers = 2, .heads = 4, .channels = 32, .precision = precision};
}

double train_step(Transformer& model, Optimizer& optimizer, uint64_t step, double learning_rate) {
  return train_step(model, optimizer, dummy_batch(model.config, 4, model.config.context, step),
                    learning_rate);
}

struct BytesPerParameter {
  int64_t weight, master, gradient, state;
};

template <class MakeOptimizer>
void expect_bytes(const char* device, const Precision& precision, const BytesPerParameter& expected,
                  MakeOptimizer make) {
  Context context(device, 1);
  Transformer model(tiny(precision));
  model.initialize(1);
  const auto optimizer = make(model.parameters);
  for (uint64_t step = 0; step < 2; ++step) train_step(model, *optimizer, step, 1e-3);
  const int64_t N = model.parameters.numel();
  const Usage& peak = context.device.meter().at_peak();
  EXPECT_EQ(peak[Kind::Weight], expected.weight * N) << device;
  EXPECT_EQ(peak[Kind::Master], expected.master * N) << device;
  EXPECT_EQ(peak[Kind::Gradient], expected.gradient * N) << device;
  EXPECT_EQ(peak[Kind::Optimizer], expected.state * N) << device;
}

// Published: 16, 18 and 8 bytes with AdamW (reference numbers 1.1, 3.4, 4.2); with momentum there is one
// state less.
TEST(L04_Precision, BytesPerParameterAsPublished) {
  const auto adamw = [](Parameters& p) { return std::make_unique<AdamW>(p); };
  const auto momentum = [](Parameters& p) { return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f}); };
  std::vector<const char*> devices = devices_with_data();
  devices.push_back("meta");
  for (const char* device : devices) {
    expect_bytes(device, precision_recipe("fp32"), {4, 0, 4, 8}, adamw);
    expect_bytes(device, precision_recipe("mixed"), {2, 4, 4, 8}, adamw);
    expect_bytes(device, precision_recipe("half"), {2, 0, 2, 4}, adamw);
    expect_bytes(device, precision_recipe("fp32"), {4, 0, 4, 4}, momentum);
    expect_bytes(device, precision_recipe("mixed"), {2, 4, 4, 4}, momentum);
    expect_bytes(device, mixed(DType::F16), {2, 4, 4, 8}, adamw);
  }
}

TEST(L04_PrecisionRecipes, AreThePublishedOnes) {
  using D = DType;
  const std::vector<std::pair<std::string_view, Precision>> recipes{
      {"fp32", {D::F32, D::F32, D::F32, false}},
      {"mixed", {D::BF16, D::F32, D::F32, true}},
      {"mixed-fp16", {D::F16, D::F32, D::F32, true}},
      {"zero", {D::F16, D::F16, D::F32, true}},
      {"half", {D::F16, D::F16, D::F16, false}}};
  ASSERT_EQ(std::size(kRecipes), recipes.size());
  for (size_t i = 0; i < recipes.size(); ++i) {
    EXPECT_EQ(kRecipes[i], recipes[i].first);
    EXPECT_EQ(precision_recipe(kRecipes[i]), recipes[i].second) << kRecipes[i];
  }
  EXPECT_EQ(Precision(), precision_recipe("fp32"));
  for (const char* name : {"", "FP32", "fp8", "mixed "})
    expect_refused(
        "precision '" + std::string(name) + "' is unknown; it can be: fp32, mixed, mixed-fp16, zero, half",
        [&] { precision_recipe(name); });
}

// Adam's first update is the learning rate, whatever the gradient. 2^-14 is too small to change a weight of
// 1, because the next bf16 number is 2^-8 larger; in fp32 the updates add up.
TEST(L04_Precision, TheMasterCopyKeepsUpdatesThatTheWeightRoundsAway) {
  for (const char* device : devices_with_data()) {
    Context context(device, 1);
    Transformer with(tiny(mixed(DType::BF16))), without(tiny(uniform(DType::BF16)));
    for (Transformer* model : {&with, &without}) {
      model->initialize(1);
      AdamW optimizer(model->parameters);
      for (uint64_t step = 0; step < 3; ++step) train_step(*model, optimizer, step, 0x1p-14);
    }
    const Parameter &kept = with.parameters.find("ln_f.weight"),
                    &lost = without.parameters.find("ln_f.weight");
    const std::vector<double> master = to_host<double>(kept.master), value = to_host<double>(kept.value);
    for (size_t i = 0; i < master.size(); ++i) {
      EXPECT_NE(master[i], 1) << device << ", element " << i;
      EXPECT_EQ(value[i], double(float(bf16(float(master[i]))))) << device << ", element " << i;
    }
    for (const double w : to_host<double>(lost.value)) EXPECT_EQ(w, 1) << device;
  }
}

// Activations in bf16 have 8 bits: in each step the loss differs from that of fp32 by at most this rounding.
TEST(L04_Precision, MixedLearnsAsFp32Does) {
  for (const char* device : devices_with_data()) {
    std::vector<double> losses[2];
    for (const bool is_mixed : {false, true}) {
      Context context(device, 1);
      Transformer model(tiny(is_mixed ? mixed(DType::BF16) : uniform(DType::F32)));
      model.initialize(1);
      AdamW optimizer(model.parameters);
      for (int step = 0; step < 8; ++step)
        losses[is_mixed].push_back(train_step(model, optimizer, 0, 1e-2));  // always the same batch
    }
    for (size_t i = 0; i < losses[0].size(); ++i)
      EXPECT_NEAR(losses[1][i], losses[0][i], 0x1p-8 * losses[0][0]) << device << ", step " << i;
    EXPECT_LT(losses[1].back(), 0.8 * losses[1].front()) << device;
  }
}

TEST(L04_Precision, ALoadedRunGoesOnAsIfNeverStopped) {
  const std::string path = ::testing::TempDir() + "loaded.safetensors";
  for (const char* recipe : {"fp32", "mixed"}) {
    TransformerConfig config = tiny(precision_recipe(recipe));
    config.dropout = 0.1;
    std::vector<double> whole;
    {
      Context context("cpu", 1);
      Transformer model(config);
      model.initialize(1);
      AdamW optimizer(model.parameters);
      for (uint64_t step = 0; step < 6; ++step) {
        if (step == 3) save_training(path, model.parameters, optimizer);
        whole.push_back(train_step(model, optimizer, step, 1e-3));
      }
    }
    Context context("cpu", 1);
    Transformer model(config);  // not initialized: everything comes from the file
    AdamW optimizer(model.parameters);
    load_training(path, model.parameters, optimizer);
    for (uint64_t step = 3; step < 6; ++step)
      EXPECT_EQ(train_step(model, optimizer, step, 1e-3), whole[step]) << recipe << ", step " << step;
  }
  std::filesystem::remove(path);
}

// The published GiB of polyglot-ko-1.3b with everything in fp16 (reference numbers, section 3), measured on
// meta, which has only addresses.
TEST(L04_Precision, PublishedBytesOfPolyglot) {
  Context context("meta");
  TransformerConfig config = transformer_config("polyglot-ko-1.3b");
  config.precision = precision_recipe("half");
  Transformer model(config);
  AdamW optimizer(model.parameters);
  const DummyBatch batch = dummy_batch(config, 1, 256);
  Tape tape;
  tape.backward(batch.loss(model));
  const Usage& now = context.device.meter().now();
  const auto gib = [](int64_t bytes) { return std::round(double(bytes) / 0x1p30 * 1000) / 1000; };
  EXPECT_EQ(gib(now[Kind::Gradient]), 2.481);
  EXPECT_EQ(gib(now[Kind::Optimizer]), 4.961);
}

}  // namespace
}  // namespace gradus
