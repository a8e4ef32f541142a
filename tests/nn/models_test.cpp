// The models that have names: their parameter counts as published, BERT and GPT-NeoX against Hugging Face's
// (tests/golden/make_models.py), and the same bytes on every device.
#include "src/core/nearest.h"
#include "src/data/dummy.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "tests/nn/golden_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct Published {
  const char* name;
  int64_t labels, count;
};
// The model cards; GPT-2's two larger ones and BERT's labels by arithmetic. gpt-12x768x12 is GPT-2.
constexpr Published kPublished[] = {
    {"gpt2", 0, 124'439'808},       {"gpt2-medium", 0, 354'823'168},        {"gpt2-large", 0, 774'030'080},
    {"gpt2-xl", 0, 1'557'611'200},  {"bert-base", 0, 109'482'240},          {"bert-large", 0, 335'141'888},
    {"bert-large", 2, 335'143'938}, {"polyglot-ko-1.3b", 0, 1'331'810'304}, {"gpt-12x768x12", 0, 124'439'808},
};

TEST(L04_Models, ParameterCountsAsPublishedByFormulaAndCounted) {
  for (const Published& p : kPublished) {
    Context context("meta");
    TransformerConfig config = transformer_config(p.name);
    config.labels = p.labels;
    EXPECT_EQ(config.parameter_count(), p.count) << p.name;
    EXPECT_EQ(Transformer(config).parameters.numel(), p.count) << p.name;
    EXPECT_EQ(context.device.meter().at_peak()[Kind::Weight], 4 * p.count) << p.name;
  }
}

TEST(L04_Models, TheParametersOfBertLargeByPart) {  // as in the published breakdown
  Context context("meta");
  Transformer model(transformer_config("bert-large"));
  int64_t embeddings = 0, layer = 0, pooler = 0;
  for (const Parameter& p : model.parameters) {
    if (p.name.starts_with("h.7.")) layer += p.value.numel();
    if (p.name.starts_with("pooler.")) pooler += p.value.numel();
    if (p.name.starts_with("w") || p.name.starts_with("ln_e.")) embeddings += p.value.numel();
  }
  EXPECT_EQ(embeddings, 31'782'912);
  EXPECT_EQ(layer, 12'596'224);
  EXPECT_EQ(pooler, 1'049'600);
}

TEST(L04_Models, TheZeroPapersSevenAndAHalfBillion) {
  EXPECT_NEAR(double(transformer_config("gpt-36x4096x32").parameter_count()), 7.5e9, 0.05e9);
}

std::string refusal_of(const std::string& name) {
  return refusal([&] { transformer_config(name); });
}

TEST(L04_Models, UnknownNamesListTheKnownAndSuggestTheNearest) {
  for (const auto& [name, nearest] :
       std::vector<std::pair<std::string, std::string>>{{"bert-larg", "bert-large"},
                                                        {"bertbase", "bert-base"},
                                                        {"GPT2", "gpt2"},
                                                        {"gpt3-xl", "gpt2-xl"},
                                                        {"polyglot-1.3b", "polyglot-ko-1.3b"},
                                                        {"", "gpt2"}}) {
    const std::string text = refusal_of(name);
    EXPECT_NE(text.find("did you mean " + nearest + "?"), std::string::npos) << text;
    for (const char* known : {"gpt2-medium", "gpt2-large", "bert-base", "polyglot-ko-1.3b", "gpt-LAYERSx"})
      EXPECT_NE(text.find(known), std::string::npos) << text;
  }
  for (const char* name : {"gpt-", "gpt-12", "gpt-12x768", "gpt-12x768x", "gpt-12x768x12x1", "gpt-axbxc",
                           "gpt-12x768x12 ", "gpt-99999999999999999999x1x1", "gpt-12 x768x12"})
    EXPECT_NE(refusal_of(name).find("is unknown"), std::string::npos) << name;
  for (const char* name : {"gpt-0x768x12", "gpt-12x-768x12", "gpt-12x768x7", "gpt-999999999x999999999x1"})
    EXPECT_NE(refusal_of(name).find("transformer: "), std::string::npos) << name;
}

TransformerConfig tiny(const char* name) {
  TransformerConfig config = transformer_config(name);
  config.vocab = 37, config.context = 12, config.layers = 2, config.heads = 2, config.channels = 16;
  config.rotary /= 16;  // of 8 dimensions instead of 128
  config.dropout = 0;
  if (config.output_head == OutputHead::Pooled) config.labels = 2;
  return config;
}

TEST(L04_Models, TheDistanceOfTwoWordsIsThatOfLevenshtein) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("saturday", "sunday"), 3u);
  EXPECT_EQ(edit_distance("sunday", "saturday"), 3u);
  EXPECT_EQ(edit_distance("gpt2", "gpt2"), 0u);
  for (const char* word : {"", "a", "gpt2"}) {
    EXPECT_EQ(edit_distance(word, ""), std::string(word).size());
    EXPECT_EQ(edit_distance("", word), std::string(word).size());
  }
}

TEST(L04_Models, ImpossibleConfigurationsAreRefused) {
  Context context("meta");
  const auto refused = [](const char* name, auto change) {
    TransformerConfig config = tiny(name);
    change(config);
    EXPECT_THROW(Transformer{config}, Error);
  };
  for (const int64_t rotary : {-2, 3, 10})
    refused("polyglot-ko-1.3b", [=](TransformerConfig& c) { c.rotary = rotary; });
  refused("gpt2", [](TransformerConfig& c) { c.labels = 2; });
  refused("bert-base", [](TransformerConfig& c) { c.labels = -1; });
  refused("bert-base", [](TransformerConfig& c) { c.token_types = -1; });
}

TEST(L04_Models, TokenTypesAndLabelsMustFit) {
  Context context("meta");
  const auto ids = [&](const Shape& s) { return Tensor(context.device, s, DType::I32, Kind::Data, "ids"); };
  TransformerConfig config = tiny("bert-base");
  Transformer bert(config), gpt(tiny("gpt2"));
  EXPECT_THROW(bert.logits(ids({3, 12})), Error);
  EXPECT_THROW(bert.logits(ids({3, 12}), ids({3, 11})), Error);
  EXPECT_THROW(gpt.logits(ids({3, 12}), ids({3, 12})), Error);
  EXPECT_EQ(bert.logits(ids({3, 12}), ids({3, 12})).shape(), (Shape{3, 2}));
  config.labels = 0;
  Transformer unlabelled(config);
  EXPECT_EQ(unlabelled.logits(ids({3, 12}), ids({3, 12})).shape(), (Shape{3, 16})) << "the pooled token";
  EXPECT_THROW(unlabelled.loss(ids({3, 12}), ids({3}), ids({3, 12})), Error);
}

using Attention = decltype(&attention_plain);
struct L04_Golden : ::testing::TestWithParam<std::tuple<const char*, Attention>> {
  Context context{std::get<const char*>(GetParam())};

  void expect_golden(TransformerConfig config, const char* path, const Shape& labels) {
    config.attention = std::get<Attention>(GetParam());
    Transformer model(config);
    Golden file(path);
    file.read_weights(model.parameters);
    const Tensor ids = file.read_ids("input_ids", {3, 12});
    const Tensor types = config.token_types > 0 ? file.read_ids("token_type_ids", {3, 12}) : Tensor();
    const Tensor targets = file.read_ids("targets", labels);
    const Tensor logits = model.logits(ids, types);
    const std::vector<double> want = file.read("logits", logits.shape()), got = to_host<double>(logits);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i]))) << "logit " << i;
    Tape tape;
    const Tensor loss = model.loss(ids, targets, types);
    const double expected = file.read("loss", {1})[0];
    EXPECT_NEAR(item(loss), expected, 1e-5 * expected);
    tape.backward(loss);
    file.expect_gradients(model.parameters);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, L04_Golden,
                         ::testing::Combine(::testing::ValuesIn(devices_with_data()),
                                            ::testing::Values(attention_plain, attention_flash)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == attention_plain ? "_plain" : "_flash");
                         });
TEST_P(L04_Golden, Bert) { expect_golden(tiny("bert-base"), "tests/golden/bert.safetensors", {3}); }
TEST_P(L04_Golden, NeoX) {
  expect_golden(tiny("polyglot-ko-1.3b"), "tests/golden/neox.safetensors", {3, 12});
}

struct Trained {
  std::vector<double> losses;
  Usage peak;
  std::map<Cost, int64_t> work;
};
Trained train(const char* device, const TransformerConfig& config) {
  Context context(device, 3);
  context.device.meter().keep_trace();
  Transformer model(config);
  model.initialize(3);
  AdamW optimizer(model.parameters);
  const DummyBatch batch = dummy_batch(config, 4, config.context);
  Trained trained;
  for (int step = 0; step < 4; ++step) {
    Tape tape;
    const Tensor loss = batch.loss(model);
    trained.losses.push_back(item(loss));
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.step(1e-2);
  }
  trained.peak = context.device.meter().at_peak(), trained.work = context.device.meter().trace();
  return trained;
}

TEST(L04_Models, EveryDeviceNeedsTheSameBytesAndLearnsTheSame) {
  for (const char* name : {"bert-base", "polyglot-ko-1.3b"}) {
    TransformerConfig config = tiny(name);
    config.dropout = 0.1;
    const Trained meta = train("meta", config), cpu = train("cpu", config);
    EXPECT_LT(cpu.losses.back(), cpu.losses.front()) << name;
    for (const char* device : devices_with_data()) {
      const Trained got = train(device, config);
      EXPECT_EQ(got.peak.by_kind, meta.peak.by_kind) << name << " on " << device;
      EXPECT_EQ(got.peak.rounding, meta.peak.rounding) << name << " on " << device;
      EXPECT_EQ(got.work, meta.work) << name << " on " << device;
      for (size_t i = 0; i < cpu.losses.size(); ++i)
        EXPECT_NEAR(got.losses[i], cpu.losses[i], 1e-3) << name << " on " << device << ", step " << i;
    }
  }
}

// Rotary positions are relative: moved along by some tokens, the same window gives the same attention.
TEST(L04_Models, RotaryScoresDependOnDistanceAlone) {
  Context context("cpu", 3);
  const int64_t T = 40, C = 8;
  std::vector<double> same;  // the same q, k, v at every position
  Rng rng(1, 1);
  for (int64_t c = 0; c < 3 * C; ++c) same.push_back(rng.normal());
  std::vector<double> values;
  for (int64_t t = 0; t < T; ++t) values.insert(values.end(), same.begin(), same.end());
  const std::vector<double> turned = to_host<double>(
      rotary(from_host(context.device, values, {1, T, 3 * C}, DType::F32, Kind::Data, "qkv"), 1, C));
  const auto score = [&](int64_t query, int64_t key) {
    double sum = 0;
    for (int64_t c = 0; c < C; ++c) sum += turned[query * 3 * C + c] * turned[key * 3 * C + C + c];
    return sum;
  };
  for (int64_t t = 7; t < T; ++t) EXPECT_NEAR(score(t, t - 7), score(7, 0), 1e-5) << "position " << t;
  EXPECT_GT(std::abs(score(7, 0) - score(7, 3)), 1e-3);
}

}  // namespace
}  // namespace gradus
