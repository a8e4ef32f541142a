// A transformer as a configuration: the defaults, the named configurations, each refusal by its sentence and
// on both sides of its limit, and the numbers that a configuration determines.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "src/nn/transformer.h"
#include "src/train/dummy.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L03_TransformerConfig, TheDefaultsAreASmallGpt2) {
  const TransformerConfig c;
  EXPECT_EQ(c.vocab, 256);
  EXPECT_EQ(c.context, 64);
  EXPECT_EQ(c.layers, 4);
  EXPECT_EQ(c.heads, 4);
  EXPECT_EQ(c.channels, 128);
  EXPECT_EQ(c.dropout, 0);
  EXPECT_EQ(c.precision, Precision());
  EXPECT_EQ(c.attention, &attention_plain);
  EXPECT_EQ(c.residual, Residual::PreNorm);
  EXPECT_EQ(c.output_head, OutputHead::Tied);
  EXPECT_EQ(c.mask, Mask::Causal);
  EXPECT_EQ(c.activation, &gelu);
  EXPECT_EQ(c.rotary, 0);
  EXPECT_EQ(c.token_types, 0);
  EXPECT_EQ(c.labels, 0);
  EXPECT_EQ(c.norm_eps, 1e-5);
}

// Compares all fields; layers, channels and heads of `c` are not used.
void expect_named(const char* name, int64_t layers, int64_t channels, int64_t heads, TransformerConfig c) {
  SCOPED_TRACE(name);
  const TransformerConfig got = transformer_config(name);
  EXPECT_EQ(std::tuple(got.layers, got.channels, got.heads), std::tuple(layers, channels, heads));
  EXPECT_EQ(std::tuple(got.vocab, got.context, got.rotary, got.token_types, got.labels),
            std::tuple(c.vocab, c.context, c.rotary, c.token_types, c.labels));
  EXPECT_EQ(std::tuple(got.dropout, got.norm_eps), std::tuple(c.dropout, c.norm_eps));
  EXPECT_EQ(std::tuple(got.residual, got.output_head, got.mask, got.activation),
            std::tuple(c.residual, c.output_head, c.mask, c.activation));
}
TEST(L04_TransformerConfig, Gpt2sOfAllSizes) {
  const TransformerConfig gpt2{.vocab = 50257, .context = 1024};
  expect_named("gpt2", 12, 768, 12, gpt2);
  expect_named("gpt2-medium", 24, 1024, 16, gpt2);
  expect_named("gpt2-large", 36, 1280, 20, gpt2);
  expect_named("gpt2-xl", 48, 1600, 25, gpt2);
  expect_named("gpt-3x40x5", 3, 40, 5, gpt2);
  expect_named("gpt-1000x1x1", 1000, 1, 1, gpt2);
}

TEST(L04_TransformerConfig, BertsAndPolyglots) {
  const TransformerConfig bert{.vocab = 30522,
                               .context = 512,
                               .dropout = 0.1,
                               .residual = Residual::PostNorm,
                               .output_head = OutputHead::Pooled,
                               .mask = Mask::None,
                               .activation = &gelu_erf,
                               .token_types = 2,
                               .norm_eps = 1e-12};
  expect_named("bert-base", 12, 768, 12, bert);
  expect_named("bert-large", 24, 1024, 16, bert);
  expect_named("polyglot-ko-1.3b", 24, 2048, 16,
               {.vocab = 30080,
                .context = 2048,
                .residual = Residual::Parallel,
                .output_head = OutputHead::Untied,
                .activation = &gelu_erf,
                .rotary = 64});
}

TEST(L04_TransformerConfig, AnUnknownNameListsAllThatAreKnownAndSuggestsTheNearest) {
  for (const auto& [name, nearest] :
       std::vector<std::pair<std::string, std::string>>{{"gpt5", "gpt2"},
                                                        {"bert-larg", "bert-large"},
                                                        {"bertbase", "bert-base"},
                                                        {"GPT2", "gpt2"},
                                                        {"gpt3-xl", "gpt2-xl"},
                                                        {"polyglot-1.3b", "polyglot-ko-1.3b"},
                                                        {"", "gpt2"}})
    expect_refused(
        "model '" + name + "' is unknown; did you mean " + nearest +
            "? Known: gpt2, gpt2-medium, gpt2-large, gpt2-xl, bert-base, bert-large, "
            "polyglot-ko-1.3b, llama-2-7b, llama-3-8b, mixtral-8x7b, and gpt-LAYERSxCHANNELSxHEADS, "
            "for example gpt-36x4096x32",
        [&, name = name] { transformer_config(name); });
  for (const char* name : {"gpt-", "gpt-12", "gpt-12x768", "gpt-12x768x", "gpt-12x768x12x1", "gpt-axbxc",
                           "gpt-12x768x12 ", "gpt-99999999999999999999x1x1", "gpt-12 x768x12"})
    expect_refused("is unknown", [&] { transformer_config(name); });
  for (const char* name : {"gpt-0x768x12", "gpt-12x-768x12", "gpt-12x768x7", "gpt-999999999x999999999x1"})
    expect_refused("transformer: ", [&] { transformer_config(name); });
  expect_refused("transformer: 1001 layers; gradus trains at most 1000",
                 [] { transformer_config("gpt-1001x1x1"); });
}

TransformerConfig changed(const std::function<void(TransformerConfig&)>& change) {
  TransformerConfig c{.vocab = 10, .context = 4, .layers = 1, .heads = 2, .channels = 8};
  change(c);
  return c;
}
TEST(L03_TransformerConfig, WhatCannotBeIsRefusedByItsSentenceAtItsLimit) {
  using C = TransformerConfig;
  const auto refused = [](const std::string& with, const std::function<void(C&)>& change) {
    expect_refused("transformer: " + with, [&] { changed(change).validate(); });
    Context context("meta");
    expect_refused("transformer: " + with, [&] { Transformer model(changed(change)); });
  };
  const auto accepted = [](const std::function<void(C&)>& change) {
    EXPECT_EQ(refusal([&] { changed(change).validate(); }), "");
  };
  for (int64_t C::*size : {&C::vocab, &C::context, &C::layers, &C::heads, &C::channels})
    for (const int64_t n : {0, -1}) refused("vocabulary ", [&](C& c) { c.*size = n; });
  refused("vocabulary 10, context 0, layers 1, heads 2, channels 8; every size must be at least 1",
          [](C& c) { c.context = 0; });
  accepted([](C& c) { c.vocab = c.context = c.layers = c.heads = c.channels = 1; });
  accepted([](C& c) { c.layers = 1000; });
  refused("1001 layers; gradus trains at most 1000", [](C& c) { c.layers = 1001; });
  accepted([](C& c) { c.channels = 1, c.heads = 1, c.vocab = 999'999'999'999'983; });  // and 4 + 12
  refused("about 1e+15 parameters; gradus counts up to 1e15",
          [](C& c) { c.channels = 1, c.heads = 1, c.vocab = 999'999'999'999'984; });
  refused("3 heads do not divide 8 channels; choose a multiple of the heads, for example 9",
          [](C& c) { c.heads = 3; });
  refused("16 heads do not divide 8 channels; choose a multiple of the heads, for example 16",
          [](C& c) { c.heads = 16; });
  accepted([](C& c) { c.heads = 8; });
  for (const double p : {-1e-9, 1.0, 2.0, double(NAN)})
    refused("dropout " + std::string(p == 1 ? "1 must be at least 0 and below 1" : ""),
            [=](C& c) { c.dropout = p; });
  accepted([](C& c) { c.dropout = 0.999; });
}

TEST(L04_TransformerConfig, WhatCannotBeOfTheOtherFamilies) {
  using C = TransformerConfig;
  const auto refused = [](const std::string& with, const std::function<void(C&)>& change) {
    expect_refused("transformer: " + with, [&] { changed(change).validate(); });
  };
  for (const int64_t n : {-2, 1, 3, 6})
    refused(std::to_string(n) + " of the 4 dimensions of a head cannot be rotated; it must be an even number",
            [=](C& c) { c.rotary = n; });
  for (const int64_t n : {0, 2, 4}) changed([=](C& c) { c.rotary = n; }).validate();
  refused("token types -1, labels 0; neither can be negative", [](C& c) { c.token_types = -1; });
  refused("token types 0, labels -1; neither",
          [](C& c) { c.labels = -1, c.output_head = OutputHead::Pooled; });
  for (const OutputHead head : {OutputHead::Tied, OutputHead::Untied})
    refused("2 labels need a pooled head: output_head = OutputHead::Pooled",
            [=](C& c) { c.labels = 2, c.output_head = head; });
  changed([](C& c) { c.labels = 2, c.output_head = OutputHead::Pooled, c.token_types = 1; }).validate();
}

// V C + T C + L (12 C^2 + 13 C) + 2 C, and the parameters that other configurations add.
TEST(L04_TransformerConfig, ParametersByFormulaAreThoseThatAreMade) {
  EXPECT_EQ(changed([](TransformerConfig&) {}).parameter_count(), 80 + 32 + (768 + 104) + 16);
  for (const Residual residual : {Residual::PreNorm, Residual::PostNorm, Residual::Parallel})
    for (const OutputHead head : {OutputHead::Tied, OutputHead::Untied, OutputHead::Pooled})
      for (const int64_t rotary : {0, 2})
        for (const int64_t types : {0, 3})
          for (const int64_t labels : {0, 5}) {
            if (labels > 0 && head != OutputHead::Pooled) continue;
            Context context("meta");
            const TransformerConfig c = changed([&](TransformerConfig& c) {
              c.residual = residual, c.output_head = head, c.rotary = rotary, c.token_types = types;
              c.labels = labels, c.layers = 3;
            });
            const int64_t of_head = head == OutputHead::Tied     ? 0
                                    : head == OutputHead::Untied ? 80
                                                                 : 72 + labels * 9;
            const int64_t count = 80 + (rotary > 0 ? 0 : 32) + types * 8 + of_head + 3 * 872 + 16;
            EXPECT_EQ(c.parameter_count(), count);
            EXPECT_EQ(Transformer(c).parameters.numel(), count);
            EXPECT_EQ(c.flops_per_token(), 6 * count + 12 * 3 * 8 * 4);
          }
}

// A row (1,-1) has mean 0 and variance 1; with an epsilon of 1, a norm turns a variance of 1 into 1/2, the
// next norm this into 1/3, the next into 1/4. Attention and MLP add nothing: their projections are 0.
TEST(L04_TransformerConfig, EveryNormHasTheEpsilonOfTheConfiguration) {
  for (const Residual residual : {Residual::PreNorm, Residual::PostNorm, Residual::Parallel}) {
    Context context("cpu");
    TransformerConfig c{.vocab = 2, .context = 1, .layers = 1, .heads = 1, .channels = 2};
    c.residual = residual, c.output_head = OutputHead::Untied, c.norm_eps = 1;
    Transformer model(c);
    for (Parameter& p : model.parameters) {
      const bool gain = p.name.find("ln_") != std::string::npos && p.name.ends_with("weight");
      copy_from_host(p.value, std::vector<double>(p.value.numel(), gain ? 1 : 0));
    }
    copy_from_host(model.parameters.find("wte.weight").value, {1, -1, 0, 0});
    copy_from_host(model.parameters.find("lm_head.weight").value, {1, 0, 0, 1});
    const Tensor id =
        from_host(context.device, std::vector<int32_t>{0}, {1, 1}, DType::I32, Kind::Data, "id");
    const std::vector<double> logits = to_host<double>(model.logits(id));
    const double expected = std::sqrt(residual == Residual::PostNorm ? 1.0 / 4 : 1.0 / 2);
    EXPECT_NEAR(logits[0], expected, 1e-6) << int(residual);
    EXPECT_NEAR(logits[1], -expected, 1e-6) << int(residual);
    Parameters parameters;
    const TransformerBlock block(parameters, "h", c);
    EXPECT_EQ(block.ln_1.eps, 1);
    EXPECT_EQ(block.ln_2.eps, 1);
  }
}

// The arguments that a block gives to its attention: the heads, the mask and the dropout of the
// configuration.
struct Asked {
  Shape qkv;
  int64_t heads = 0;
  Mask mask = Mask::None;
  double dropout = 0;
};
std::vector<Asked> asked;
Tensor recording_attention(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head) {
  EXPECT_EQ(first_head, 0);
  EXPECT_EQ(heads.kv, heads.q);
  asked.push_back({qkv.shape(), heads.q, mask, dropout});
  return attention_plain(qkv, heads, mask, 0);
}
TEST(L04_TransformerConfig, AttentionIsAskedForWhatIsConfigured) {
  for (const Residual residual : {Residual::PreNorm, Residual::PostNorm, Residual::Parallel})
    for (const Mask mask : {Mask::Causal, Mask::None}) {
      Context context("meta");
      const TransformerConfig c = changed([&](TransformerConfig& c) {
        c.residual = residual, c.mask = mask, c.layers = 3, c.dropout = 0.25;
        c.attention = recording_attention;
      });
      asked.clear();
      const Transformer model(c);
      model.logits(dummy_batch(c, 2, 3).ids);
      ASSERT_EQ(asked.size(), 3u);
      for (const Asked& a : asked) {
        EXPECT_EQ(a.qkv, (Shape{2, 3, 24}));
        EXPECT_EQ(a.heads, 2);
        EXPECT_EQ(a.mask, mask);
        EXPECT_EQ(a.dropout, 0.25);
      }
    }
}

TEST(L03_TransformerConfig, IdsAreRowsOfAtMostTheContext) {
  Context context("meta");
  const TransformerConfig c = changed([](TransformerConfig&) {});
  const Transformer model(c);
  const auto ids = [&](const Shape& s) { return Tensor(context.device, s, DType::I32, Kind::Data, "ids"); };
  EXPECT_EQ(model.logits(ids({3, 4})).shape(), (Shape{3, 4, 10}));
  EXPECT_EQ(model.logits(ids({1, 1})).shape(), (Shape{1, 1, 10}));
  for (const Shape& bad : {Shape{3, 5}, Shape{4}, Shape{1, 3, 4}, Shape{}})
    expect_refused("they must be (B, T) with T at most the context, 4", [&] { model.logits(ids(bad)); });
  EXPECT_EQ(model.loss(ids({3, 4}), ids({3, 4})).shape(), Shape());
  expect_refused("token types were given to a model that has none", [&] {
    model.logits(ids({3, 4}), ids({3, 4}));
  });
}

TEST(L03_TransformerConfig, InitializationIsOfAllParametersAlsoOfFrozenOnes) {
  Context context("cpu");
  const TransformerConfig c = changed([](TransformerConfig& c) { c.precision = mixed(DType::BF16); });
  Transformer model(c), half_frozen(c);
  bool trains = false;
  for (Parameter& p : half_frozen.parameters) half_frozen.parameters.set_trainable(p, trains = !trains);
  model.initialize(4), half_frozen.initialize(4);
  for (Parameter& p : half_frozen.parameters) {
    const Parameter& same = model.parameters.find(p.name);
    EXPECT_EQ(to_host<double>(p.master), to_host<double>(same.master)) << p.name;
    EXPECT_EQ(to_host<double>(p.value), to_host<double>(same.value)) << p.name;
  }
}

TEST(L04_TransformerConfig, TypesAreOfTheShapeOfTheIds) {
  Context context("meta");
  const Transformer model(changed([](TransformerConfig& c) { c.token_types = 2; }));
  const auto ids = [&](const Shape& s) { return Tensor(context.device, s, DType::I32, Kind::Data, "ids"); };
  EXPECT_EQ(model.logits(ids({2, 3}), ids({2, 3})).shape(), (Shape{2, 3, 10}));
  const std::string wanted = "2 token types; give the type of each token, int32 [2,3]";
  expect_refused(wanted, [&] { model.logits(ids({2, 3})); });
  for (const Shape& bad : {Shape{6}, Shape{3, 2}, Shape{2, 2}, Shape{2, 3, 1}})
    expect_refused(wanted, [&] { model.logits(ids({2, 3}), ids(bad)); });
  expect_refused("a model without labels has no loss; set labels, for example to 2", [&] {
    const Transformer pooled(changed([](TransformerConfig& c) { c.output_head = OutputHead::Pooled; }));
    pooled.loss(ids({2, 3}), ids({2}));
  });
}

TEST(L04_TransformerConfig, ActivationsAreOfThePrecisionAndTheLossIsFp32) {
  for (const Precision& precision : {uniform(DType::F32), mixed(DType::BF16), uniform(DType::F16)}) {
    Context context("meta");
    const TransformerConfig c = changed([&](TransformerConfig& c) { c.precision = precision; });
    const Transformer model(c);
    const DummyBatch batch = dummy_batch(c, 2, 3);
    EXPECT_EQ(model.logits(batch.ids).dtype(), precision.value);
    EXPECT_EQ(batch.loss(model).dtype(), DType::F32);
  }
}

}  // namespace
}  // namespace gradus
