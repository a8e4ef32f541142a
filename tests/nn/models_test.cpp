// The named models: parameters, FLOPs and bytes as published.
#include <gtest/gtest.h>

#include "src/nn/transformer.h"
#include "src/tensor/context.h"

namespace gradus {
namespace {

struct Published {
  const char* name;
  int64_t labels, count;
};
// From the model cards; GPT-2's two larger models and BERT's labels by arithmetic. gpt-12x768x12 is GPT-2.
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

// nanoGPT's sizing notebook: PaLM's formula for 124M, T = 1024.
TEST(L03_Models, FlopsPerTokenAsPublished) {
  TransformerConfig gpt2 = transformer_config("gpt2");
  gpt2.vocab = 50304;
  EXPECT_EQ(6 * gpt2.parameter_count() + 12 * gpt2.layers * gpt2.channels * gpt2.context, 860'101'632);
  EXPECT_EQ(gpt2.flops_per_token(), 860'101'632);
}

}  // namespace
}  // namespace gradus
