// Parameters of the three families: names, shapes, decay, initial values, loading, and gradients that do not
// depend on which other parameters train.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "src/io/save_load.h"
#include "src/train/dummy.h"
#include "tests/nn/families_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L03_Families : ::testing::TestWithParam<const char*> {
  Context context{"cpu", 3};
  const TransformerConfig config = family(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Families, L03_Families, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param); });

struct Row {
  std::string name;
  Shape shape;
};
// The names in the published files of GPT-2, and the additional ones of the other two families; shapes (out,
// in), as in nn.Linear.
std::vector<Row> expected_rows(std::string_view name) {
  const bool bert = name == "bert", neox = name == "neox";
  std::vector<Row> rows{{"wte.weight", {31, 24}}};
  if (!neox) rows.push_back({"wpe.weight", {12, 24}});
  if (bert) rows.push_back({"wtt.weight", {2, 24}});
  for (const std::string h : {"h.0.", "h.1."})
    for (const Row& row : {Row{"ln_1.weight", {24}},
                           {"ln_1.bias", {24}},
                           {"attn.c_attn.weight", {72, 24}},
                           {"attn.c_attn.bias", {72}},
                           {"attn.c_proj.weight", {24, 24}},
                           {"attn.c_proj.bias", {24}},
                           {"ln_2.weight", {24}},
                           {"ln_2.bias", {24}},
                           {"mlp.c_fc.weight", {96, 24}},
                           {"mlp.c_fc.bias", {96}},
                           {"mlp.c_proj.weight", {24, 96}},
                           {"mlp.c_proj.bias", {24}}})
      rows.push_back({h + row.name, row.shape});
  const std::string ln = bert ? "ln_e." : "ln_f.";
  rows.push_back({ln + "weight", {24}}), rows.push_back({ln + "bias", {24}});
  if (neox) rows.push_back({"lm_head.weight", {31, 24}});
  if (bert)
    for (const Row& row : {Row{"pooler.weight", {24, 24}},
                           {"pooler.bias", {24}},
                           {"classifier.weight", {2, 24}},
                           {"classifier.bias", {2}}})
      rows.push_back(row);
  return rows;
}

TEST_P(L03_Families, NamesShapesDecayAndThatAllOfThemTrain) {
  TransformerConfig c = config;
  c.precision = mixed(DType::BF16);
  const Transformer model(c);
  const std::vector<Row> rows = expected_rows(GetParam());
  ASSERT_EQ(model.parameters.size(), rows.size());
  auto row = rows.begin();
  for (const Parameter& p : model.parameters) {
    EXPECT_EQ(p.name, row->name);
    EXPECT_EQ(p.value.shape(), row->shape) << p.name;
    EXPECT_EQ(p.master.shape(), row->shape) << p.name;
    EXPECT_EQ(p.decay, row->shape.rank() == 2) << p.name << ": only matrices and embeddings decay";
    EXPECT_TRUE(p.trainable()) << p.name;
    EXPECT_EQ(p.value.dtype(), DType::BF16) << p.name;
    EXPECT_EQ(p.master.dtype(), DType::F32) << p.name;
    EXPECT_EQ(p.value.storage().kind(), Kind::Weight) << p.name;
    EXPECT_EQ(p.master.storage().kind(), Kind::Master) << p.name;
    ++row;
  }
}

TEST_P(L03_Families, InitializationIsByClassAndNoTwoAreAlike) {
  TransformerConfig c = config;
  c.layers = 3;
  Transformer model(c);
  model.initialize(7);
  const double residual = GetParam() == std::string("bert") ? 0.02 : 0.02 / std::sqrt(6.0);
  std::vector<std::vector<double>> drawn;
  for (const Parameter& p : model.parameters) {
    std::vector<double> w = to_host<double>(p.value);
    if (!p.decay) {
      const double constant = p.name.find("ln_") != std::string::npos && p.name.ends_with("weight") ? 1 : 0;
      EXPECT_EQ(w, std::vector<double>(w.size(), constant)) << p.name;
      continue;
    }
    const double std = p.name.ends_with("c_proj.weight") ? residual : 0.02, n = double(w.size());
    double sum = 0, squares = 0, fourth = 0;
    for (double& x : w) sum += x /= std, squares += x * x, fourth += x * x * x * x;
    EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n)) << p.name;  // five standard errors of a normal's moments
    EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n)) << p.name;
    EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n)) << p.name;
    for (const std::vector<double>& other : drawn) {
      double product = 0;
      const size_t both = std::min(w.size(), other.size());
      for (size_t i = 0; i < both; ++i) product += w[i] * other[i];
      EXPECT_NEAR(product / double(both), 0, 5 / std::sqrt(double(both)))
          << p.name << " has the same random values as an earlier parameter";
    }
    drawn.push_back(w);
  }
}

std::vector<std::vector<double>> initialized(const char* device, const TransformerConfig& config,
                                             const Precision& precision, uint64_t seed) {
  Context context(device, 3);
  TransformerConfig c = config;
  c.precision = precision;
  Transformer model(c);
  model.initialize(seed);
  std::vector<std::vector<double>> kept;
  for (const Parameter& p : model.parameters) {
    kept.push_back(to_host<double>(p.kept()));
    const std::vector<double> value = to_host<double>(p.value);
    for (size_t i = 0; i < value.size() && precision.value == DType::BF16; ++i)
      EXPECT_EQ(value[i], double(float(bf16(float(kept.back()[i]))))) << p.name << ": value = round(master)";
  }
  return kept;
}
TEST_P(L03_Families, InitializationIsTheSeedsInEveryPrecisionAndOnEveryDevice) {
  const auto fp32 = initialized("cpu", config, uniform(DType::F32), 5);
  EXPECT_EQ(initialized("emu", config, uniform(DType::F32), 5), fp32);
  EXPECT_EQ(initialized("cpu", config, mixed(DType::BF16), 5), fp32)
      << "master copies must be equal to fp32 weights";
  std::set<double> drawn;
  for (const auto& values : fp32)
    if (values[0] != 0 && values[0] != 1) drawn.insert(values[0]);
  for (const uint64_t near : {uint64_t(4), uint64_t(6), uint64_t(7), 5 + (uint64_t(1) << 32)})
    for (const auto& values : initialized("cpu", config, uniform(DType::F32), near))
      EXPECT_FALSE(drawn.contains(values[0])) << "seed " << near << " shares numbers with seed 5";
}

// If a single parameter trains, or all but one, the gradients are bitwise equal to those when all train.
TEST_P(L03_Families, GradientsDoNotDependOnWhatElseTrains) {
  Transformer model(config);
  randomize(model, 1);
  const DummyBatch batch = dummy_batch(config, 2, config.context);
  const auto gradients = [&] {
    for (Parameter& p : model.parameters) p.leaf.grad = {}, p.leaf.zero();
    Tape tape;
    tape.backward(batch.loss(model));
    std::map<std::string, std::vector<double>> g;
    for (const Parameter& p : model.parameters)
      if (p.leaf.grad.defined()) g[p.name] = to_host<double>(p.leaf.grad);
    return g;
  };
  const auto all = gradients();
  EXPECT_EQ(all.size(), model.parameters.size());
  for (Parameter& p : model.parameters) {
    model.parameters.set_trainable(p, false);
    auto expected = all;
    expected.erase(p.name);
    EXPECT_EQ(gradients(), expected) << p.name << " is frozen";
    for (Parameter& other : model.parameters) model.parameters.set_trainable(other, &other == &p);
    EXPECT_EQ(gradients(), (std::map{std::pair(p.name, all.at(p.name))})) << p.name << " trains alone";
    for (Parameter& other : model.parameters) model.parameters.set_trainable(other, true);
  }
}

// Loading weights also rounds them to the 16-bit copy.
TEST_P(L03_Families, LoadedWeightsAreUsedInEveryPrecision) {
  const std::string path = ::testing::TempDir() + "families.safetensors";
  TransformerConfig c = config;
  c.precision = mixed(DType::BF16);
  Transformer saved(c);
  randomize(saved, 2);
  AdamW saved_optimizer(saved.parameters);
  const DummyBatch batch = dummy_batch(c, 2, c.context);
  const std::vector<double> expected = to_host<double>(saved.logits(batch.ids, batch.types));
  for (const bool whole_training : {false, true}) {
    if (whole_training)
      save_training(path, saved.parameters, saved_optimizer);
    else
      save_weights(path, saved.parameters);
    Transformer loaded(c);
    loaded.initialize(9);
    AdamW optimizer(loaded.parameters);
    if (whole_training)
      load_training(path, loaded.parameters, optimizer);
    else
      load_weights(path, loaded.parameters);
    EXPECT_EQ(to_host<double>(loaded.logits(batch.ids, batch.types)), expected);
    for (Parameter& p : loaded.parameters)
      EXPECT_EQ(to_host<double>(p.master), to_host<double>(saved.parameters.find(p.name).master)) << p.name;
  }
  save_weights(path, saved.parameters);  // in fp32
  Transformer fp32(config);
  load_weights(path, fp32.parameters);
  for (Parameter& p : fp32.parameters)
    EXPECT_EQ(to_host<double>(p.value), to_host<double>(saved.parameters.find(p.name).master)) << p.name;
  TransformerConfig half = config;
  half.precision = uniform(DType::BF16);
  Transformer without_master(half);
  EXPECT_THROW(load_weights(path, without_master.parameters), Error) << "fp32 would have to be rounded";
  std::filesystem::remove(path);
}

// A table that is both embedding and head, over two micro-batches: each contribution is computed in fp32 and
// added, and the sum is rounded to the gradient's dtype each time.
TEST(L04_Gradients, OfATiedTableInSixteenBits) {
  Context context("cpu", 3);
  const Precision bf16_gradient = uniform(DType::BF16), fp32_gradient = mixed(DType::BF16);
  const int64_t V = 11, C = 6;
  Rng rng(4, 1);
  const auto random = [&](const Shape& shape) {
    std::vector<double> values(shape.numel());
    for (double& v : values) v = rng.normal();
    return from_host(context.device, values, shape, DType::BF16, Kind::Data, "x");
  };
  const Tensor x = random({5, C}), dy = random({5, V}), dx = random({5, C}), weights = random({V, C});
  const Tensor ids = ids_of({3, 7, 3, 0, 3}, {5});
  Parameters parameters;
  const auto table = [&](const char* name, const Precision& precision) -> Parameter& {
    Parameter& p = parameters.add(name, {V, C}, precision);
    copy_from_host(p.value, to_host<double>(weights));
    return p;
  };
  const auto head = [&](Parameter& p) { Tape().backward(linear(x, p.value), dy); };
  const auto embed = [&](Parameter& p) { Tape().backward(embedding(p.value, ids), dx); };
  Parameter &of_head = table("head", fp32_gradient), &of_embedding = table("embedding", fp32_gradient);
  head(of_head), embed(of_embedding);
  const std::vector<float> h = to_host<float>(of_head.leaf.grad), e = to_host<float>(of_embedding.leaf.grad);
  for (const bool sixteen : {false, true}) {
    Parameter& tied = table(sixteen ? "16" : "32", sixteen ? bf16_gradient : fp32_gradient);
    head(tied), embed(tied), head(tied);
    const auto round = [&](float v) { return sixteen ? float(bf16(v)) : v; };
    const std::vector<float> got = to_host<float>(tied.leaf.grad);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], round(round(round(h[i]) + e[i]) + h[i])) << "element " << i;
    EXPECT_EQ(tied.leaf.grad.dtype(), sixteen ? DType::BF16 : DType::F32);
  }
}

}  // namespace
}  // namespace gradus
