// A 2-layer GPT against PyTorch (tests/golden/make_gpt.py): loss, every gradient, ten AdamW steps, in fp32.
#include <gtest/gtest.h>

#include <cmath>

#include "src/io/safetensors.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Attention = decltype(&attention_plain);

struct L03_Golden : ::testing::TestWithParam<std::tuple<const char*, Attention>> {
  Context context{std::get<const char*>(GetParam())};
  SafetensorsFile file{"tests/golden/gpt.safetensors"};
  Transformer model{{.vocab = 65,
                     .context = 16,
                     .layers = 2,
                     .heads = 4,
                     .channels = 32,
                     .attention = std::get<Attention>(GetParam())}};
  Tensor ids, targets;

  std::vector<double> read(const std::string& name, const Shape& shape) {
    std::vector<float> values(shape.numel());
    file.read(name, DType::F32, shape, values.data());
    return {values.begin(), values.end()};
  }
  Tensor read_ids(const std::string& name) {
    std::vector<int32_t> values(4 * 16);
    file.read(name, DType::I32, {4, 16}, values.data());
    return from_host(context.device, values, {4, 16}, DType::I32, Kind::Data, name);
  }
  void SetUp() override {
    for (Parameter& p : model.parameters) copy_from_host(p.value, read("weight." + p.name, p.value.shape()));
    ids = read_ids("ids");
    targets = read_ids("targets");
  }
};

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

INSTANTIATE_TEST_SUITE_P(Devices, L03_Golden,
                         ::testing::Combine(::testing::ValuesIn(devices_with_data()),
                                            ::testing::Values(attention_plain, attention_flash)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == attention_plain ? "_plain" : "_flash");
                         });

TEST_P(L03_Golden, LossAndEveryGradient) {
  RecordProperty("exercise", "03.1");
  const double expected = read("losses", {10})[0];
  Tape tape;
  const Tensor loss = model.loss(ids, targets);
  EXPECT_NEAR(item(loss), expected, 1e-5 * expected);
  tape.backward(loss);
  double worst = 0;
  for (Parameter& p : model.parameters) {
    const std::vector<double> want = read("grad." + p.name, p.value.shape()),
                              got = to_host<double>(p.leaf.grad);
    std::vector<double> difference(want.size());
    for (size_t i = 0; i < want.size(); ++i) difference[i] = got[i] - want[i];
    // fp32 rounding of the gradient's terms, which are of the size of the largest gradient around: eps times
    // that.
    const double allowed = 1e-4 * norm(want) + 1.2e-7 * std::sqrt(double(want.size()));
    EXPECT_LE(norm(difference), allowed) << "gradient of " << p.name << ", norm " << norm(want);
    worst = std::max(worst, norm(difference) / allowed);
  }
  RecordProperty("% of budget used", std::to_string(100 * worst));
}

TEST_P(L03_Golden, TenAdamWSteps) {
  RecordProperty("exercise", "03.2");
  const std::vector<double> losses = read("losses", {10}), norms = read("grad_norms", {10});
  AdamW optimizer(model.parameters, {.weight_decay = 0.1f});
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    const Tensor loss = model.loss(ids, targets);
    EXPECT_NEAR(item(loss), losses[step], 1e-4 * losses[step]) << "step " << step;
    model.parameters.zero_grad();
    tape.backward(loss);
    clip_grad_norm(model.parameters, 1.0);
    EXPECT_NEAR(context.device.scalars().grad_norm, norms[step], 1e-4 * norms[step]) << "step " << step;
    optimizer.step(1e-3);
  }
  for (const char* name : {"wte.weight", "h.1.mlp.c_fc.weight"}) {
    const Tensor& value = model.parameters.find(name).value;
    const std::vector<double> want = read(std::string("final.") + name, value.shape()),
                              got = to_host<double>(value);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4 * std::abs(want[i]) + 1e-5) << name << " element " << i;
  }
}

}  // namespace
}  // namespace gradus
