// Models compared with PyTorch and Hugging Face (tests/golden/make_gpt.py, make_models.py), in fp32: a
// 2-layer GPT's loss, every gradient and ten AdamW steps; BERT's and GPT-NeoX's logits, loss and gradients.
#include "src/optim/optimizer.h"
#include "tests/nn/golden_model_testing.h"

namespace gradus {
namespace {

struct L03_Golden : GoldenTest {
  Golden file{"tests/golden/gpt.safetensors"};
  Transformer model{with_attention({.vocab = 65, .context = 16, .layers = 2, .heads = 4, .channels = 32})};
  Tensor ids, targets;

  void SetUp() override {
    file.read_weights(model.parameters);
    ids = file.read_ids("ids", {4, 16});
    targets = file.read_ids("targets", {4, 16});
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, L03_Golden, kDevicesAndAttentions, kName);

TEST_P(L03_Golden, LossAndEveryGradient) {
  RecordProperty("exercise", "03.1");
  const double expected = file.read("losses", {10})[0];
  Tape tape;
  const Tensor loss = model.loss(ids, targets);
  EXPECT_NEAR(item(loss), expected, 1e-5 * expected) << "the loss differs from PyTorch's";
  tape.backward(loss);
  file.expect_gradients(model.parameters);
}

TEST_P(L03_Golden, TenAdamWSteps) {
  RecordProperty("exercise", "03.2");
  const std::vector<double> losses = file.read("losses", {10}), norms = file.read("grad_norms", {10});
  AdamW optimizer(model.parameters, {.weight_decay = 0.1f});
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    const Tensor loss = model.loss(ids, targets);
    EXPECT_NEAR(item(loss), losses[step], 1e-4 * losses[step]) << "step " << step;
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    EXPECT_NEAR(optimizer.scalars().grad_norm, norms[step], 1e-4 * norms[step]) << "step " << step;
    optimizer.step(1e-3);
  }
  for (const char* name : {"wte.weight", "h.1.mlp.c_fc.weight"}) {
    const Tensor& value = model.parameters.find(name).value;
    const std::vector<double> want = file.read(std::string("final.") + name, value.shape()),
                              got = to_host<double>(value);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4 * std::abs(want[i]) + 1e-5) << name << " element " << i;
  }
}

struct L04_Golden : GoldenTest {
  void expect_golden(const TransformerConfig& config, const char* path, const Shape& labels) {
    Transformer model(with_attention(config));
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
INSTANTIATE_TEST_SUITE_P(Devices, L04_Golden, kDevicesAndAttentions, kName);
TransformerConfig tiny(const char* name) {
  TransformerConfig config = transformer_config(name);
  config.vocab = 37, config.context = 12, config.layers = 2, config.heads = 2, config.channels = 16;
  config.rotary /= 16;  // of 8 dimensions instead of 128
  config.dropout = 0;
  if (config.output_head == OutputHead::Pooled) config.labels = 2;
  return config;
}

TEST_P(L04_Golden, Bert) { expect_golden(tiny("bert-base"), "tests/golden/bert.safetensors", {3}); }
TEST_P(L04_Golden, NeoX) {
  expect_golden(tiny("polyglot-ko-1.3b"), "tests/golden/neox.safetensors", {3, 12});
}

}  // namespace
}  // namespace gradus
