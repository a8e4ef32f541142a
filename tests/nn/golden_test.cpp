// A 2-layer GPT against PyTorch (tests/golden/make_gpt.py): loss, every gradient, ten AdamW steps, in fp32.
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "tests/nn/golden_testing.h"

namespace gradus {
namespace {

using Attention = decltype(&attention_plain);

struct L03_Golden : ::testing::TestWithParam<std::tuple<const char*, Attention>> {
  Context context{std::get<const char*>(GetParam())};
  Golden file{"tests/golden/gpt.safetensors"};
  Transformer model{{.vocab = 65,
                     .context = 16,
                     .layers = 2,
                     .heads = 4,
                     .channels = 32,
                     .attention = std::get<Attention>(GetParam())}};
  Tensor ids, targets;

  void SetUp() override {
    file.read_weights(model.parameters);
    ids = file.read_ids("ids", {4, 16});
    targets = file.read_ids("targets", {4, 16});
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, L03_Golden,
                         ::testing::Combine(::testing::ValuesIn(devices_with_data()),
                                            ::testing::Values(attention_plain, attention_flash)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == attention_plain ? "_plain" : "_flash");
                         });

TEST_P(L03_Golden, LossAndEveryGradient) {
  RecordProperty("exercise", "03.1");
  const double expected = file.read("losses", {10})[0];
  Tape tape;
  const Tensor loss = model.loss(ids, targets);
  EXPECT_NEAR(item(loss), expected, 1e-5 * expected) << "the model's loss, and PyTorch's";
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

}  // namespace
}  // namespace gradus
