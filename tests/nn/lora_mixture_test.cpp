// Adapters and weights in 4 bits for a mixture of experts (src/nn/lora.h): attention can have them, experts
// cannot.
#include "tests/nn/lora_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L21_LoraOfAMixture : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
  TransformerConfig config{.vocab = 19,
                           .context = 6,
                           .layers = 2,
                           .heads = 4,
                           .channels = 8,
                           .output_head = OutputHead::Untied,
                           .activation = swiglu,
                           .rotary = 2,
                           .norm = NormKind::Rms,
                           .biases = false,
                           .kv_heads = 2,
                           .mlp_channels = 12,
                           .experts = 3,
                           .balance = 0.1};
  Transformer model{config};
  DummyBatch batch = dummy_batch(config, 2, 6);
  L21_LoraOfAMixture() { model.initialize(1); }
  std::vector<double> logits() {
    const Evaluation evaluation;
    return to_host<double>(model.logits(batch.ids));
  }
  void refuses(const std::string& part, const std::function<void()>& f) {
    const Kept before = kept_of(model);
    expect_refused(part, f);
    EXPECT_TRUE(kept_of(model) == before) << part;
  }
};
ON_DEVICES_WITH_DATA(L21_LoraOfAMixture);

TEST_P(L21_LoraOfAMixture, ExpertsAreRefused) {
  const std::string no_adapter =
      " is a layer of experts, which cannot have an adapter; choose a pattern that does not match it, for "
      "example .*attn.*";
  for (const char* pattern : {".*", ".*c_fc", "h.0.*"})
    refuses("lora: h.0.mlp.experts.c_fc" + no_adapter, [&] { add_lora(model, pattern, {.r = 2}, 5); });
  refuses("lora: h.1.mlp.experts.c_proj" + no_adapter,
          [&] { add_lora(model, "h.1.mlp.experts.c_proj", {.r = 2}, 5); });
  refuses("matches no whole name of a linear layer", [&] { add_lora(model, ".*router", {.r = 2}, 5); });
  add_lora(model, ".*attn.*", {.r = 2}, 5);
  refuses("lora: h.0.mlp.experts.c_fc is a layer of experts, whose weights are not kept in 4 bits",
          [&] { quantize_frozen(model); });
}

// Training changes only the adapters, and merged adapters compute the same.
TEST_P(L21_LoraOfAMixture, AttentionTrains) {
  const std::vector<double> first = logits();
  add_lora(model, ".*attn.*", {.r = 2, .alpha = 4}, 5);
  EXPECT_EQ(logits(), first);
  LoraTest::draw_b(model);
  const Kept before = kept_of(model);
  EXPECT_EQ(std::count(before.adapted.begin(), before.adapted.end(), true), 4);
  Tape tape;
  tape.backward(batch.loss(model));
  Sgd sgd(model.parameters);
  sgd.step(0.5);
  for (size_t i = 0; const Parameter& p : model.parameters) {
    const bool adapter = p.name.find(".lora_") != p.name.npos;
    EXPECT_EQ(p.trainable(), adapter) << p.name;
    EXPECT_EQ(to_host<double>(p.kept()) == before.weights[i++], !adapter) << p.name;
  }
  const std::vector<double> trained = logits();
  merge_lora(model);
  const std::vector<double> merged = logits();
  for (size_t i = 0; i < trained.size(); ++i) {
    EXPECT_NEAR(merged[i], trained[i], 1e-5) << i;
    EXPECT_NE(trained[i], first[i]) << i;
  }
}

}  // namespace
}  // namespace gradus
