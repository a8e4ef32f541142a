// The block of a mixture of experts, and a model with such blocks.
#include <gtest/gtest.h>

#include <cmath>

#include "src/nn/transformer.h"

namespace gradus {
namespace {

TransformerConfig mixture() {
  return {.vocab = 13,
          .context = 16,
          .layers = 2,
          .heads = 2,
          .channels = 8,
          .output_head = OutputHead::Untied,
          .activation = swiglu,
          .rotary = 4,
          .norm = NormKind::Rms,
          .biases = false,
          .mlp_channels = 12,
          .experts = 4,
          .capacity_factor = 1,
          .balance = 0.01};
}
Tensor tokens(int64_t T, int32_t factor) {
  std::vector<int32_t> ids;
  for (int32_t t = 0; t < T; ++t) ids.push_back(factor * t % 13);
  return from_host(current().device, ids, {1, T}, DType::I32, Kind::Data, "ids");
}

TEST(L21_Block, AnRmsNormHasTheModelsEps) {
  Context context;
  TransformerConfig c = mixture();
  c.norm_eps = 3;
  const Transformer model(c);
  for (const Norm* norm : {&model.blocks[1].ln_1, &model.blocks[1].ln_2, &model.last_norm()}) {
    EXPECT_EQ(norm->beta, nullptr);
    copy_from_host(norm->gamma.value, std::vector<double>(8, 2));
    const Tensor x =
        from_host<float>(context.device, std::vector<float>(8, 1), {1, 8}, DType::F32, Kind::Data, "x");
    for (const double y : to_host<double>((*norm)(x))) EXPECT_NEAR(y, 2 / std::sqrt(1.0 + 3), 1e-6);
  }
}

double deviation(const Transformer& model, const std::string& name) {
  for (const Parameter& p : model.parameters) {
    if (p.name != name) continue;
    double squares = 0;
    for (const double w : to_host<double>(p.value)) squares += w * w;
    return std::sqrt(squares / double(p.value.numel()));
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(L21_Block, FirstValuesOfExperts) {
  Context context;
  TransformerConfig c = mixture();
  c.channels = 64, c.mlp_channels = 64, c.rotary = 32;
  Transformer model(c);
  model.initialize(5);
  EXPECT_NEAR(deviation(model, "h.1.mlp.router.weight"), 0.02, 0.002);
  EXPECT_NEAR(deviation(model, "h.1.mlp.experts.c_fc.weight"), 0.02, 0.0005);
  EXPECT_NEAR(deviation(model, "h.1.mlp.experts.c_proj.weight"), 0.02 / std::sqrt(2.0 * 2), 0.0003)
      << "c_proj is a residual projection, so its deviation is smaller";
}

TEST(L21_Block, APartDrawsWhatTheWholeDraws) {
  Context context;
  Transformer whole(mixture()), last(mixture(), Allocate::Now, {{{1, 2}}, false, true});
  whole.initialize(5), last.initialize(5);
  for (const Parameter& p : last.parameters)
    EXPECT_EQ(to_host<double>(p.value), to_host<double>(whole.parameters.find(p.name).value)) << p.name;
}

TEST(L21_Block, PlacesAreThoseOfTheSequenceAtHand) {
  Context context;
  Transformer model(mixture());
  model.initialize(5);
  for (const int64_t T : {1, 5, 16}) {
    model.logits(tokens(T, 3));
    EXPECT_EQ(model.blocks[1].routed->routing.shape.capacity, (2 * T + 3) / 4) << T << " tokens";
    EXPECT_EQ(model.blocks[1].routed->logits.shape(), (Shape{1, T, 4}));
  }
}

TEST(L21_Block, WhatExpertsAddIsDroppedOut) {
  Context context;
  TransformerConfig c = mixture();
  c.dropout = 0.5;
  Transformer model(c);
  model.initialize(5);
  const TransformerBlock& block = model.blocks[0];
  copy_from_host(block.c_proj.weight.value, std::vector<double>(64, 0));  // attention adds nothing
  const Tensor x = embedding(model.parameters.find("wte.weight").value, tokens(16, 3));
  const std::vector<double> before = to_host<double>(x), after = to_host<double>(block(x, c));
  int64_t same = 0;
  for (size_t i = 0; i < before.size(); ++i) same += before[i] == after[i];
  EXPECT_GT(same, 128 / 4);
  EXPECT_LT(same, 128 * 3 / 4);
}

TEST(L21_Block, TheBalanceLossIsOfThePresentBatch) {
  Context context;
  Transformer model(mixture()), fresh(mixture());
  model.initialize(5), fresh.initialize(5);
  const double first = item(model.loss(tokens(16, 1), tokens(16, 5)));
  const double second = item(model.loss(tokens(16, 3), tokens(16, 5)));
  EXPECT_NE(first, second);
  EXPECT_EQ(second, item(fresh.loss(tokens(16, 3), tokens(16, 5))));
}

TEST(L21_Block, WeightsOfLargeLogitsAreFinite) {
  for (const char* device : {"cpu", "emu"}) {
    Context context(device);
    const Tensor logits = from_host<float>(context.device, {300, 299, -300, -301, -302, -303}, {1, 2, 3},
                                           DType::F32, Kind::Data, "x");
    for (const double w : to_host<double>(choose_experts(logits, 2, 2).weights))
      EXPECT_TRUE(w > 0.26 && w < 0.74) << w;
  }
}

}  // namespace
}  // namespace gradus
