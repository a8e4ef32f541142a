// The optimizers against PyTorch's and Hugging Face's (tests/golden/make_optimizers.py), in fp32: ten updates
// with the same gradients, and ten steps of a GPT with each one's own.
#include "src/nn/transformer.h"
#include "src/optim/muon.h"
#include "tests/nn/golden_testing.h"

namespace gradus {
namespace {

struct Tried {
  const char* name;
  double rate, tolerance;  // of the largest weight
  std::function<std::unique_ptr<Optimizer>(Parameters&)> make;
};
const std::vector<Tried>& all() {
  constexpr float kDecay = 0.1f;
  static const std::vector<Tried> tried{
      {"sgd", 0.03, 1e-6,
       [](Parameters& p) { return std::make_unique<Sgd>(p, SgdArgs{.weight_decay = kDecay}); }},
      {"momentum", 0.02, 1e-6,
       [](Parameters& p) {
         return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f, .weight_decay = kDecay});
       }},
      {"nesterov", 0.02, 1e-6,
       [](Parameters& p) {
         return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f, .weight_decay = kDecay, .nesterov = true});
       }},
      {"adamw", 1e-3, 1e-6,
       [](Parameters& p) {
         return std::make_unique<AdamW>(p, AdamWArgs{.beta2 = 0.95f, .weight_decay = kDecay});
       }},
      {"adafactor", 1e-2, 1e-6,
       [](Parameters& p) { return std::make_unique<Adafactor>(p, AdafactorArgs{.weight_decay = kDecay}); }},
      {"adafactor_given", 1e-3, 1e-6,
       [](Parameters& p) {
         return std::make_unique<Adafactor>(
             p, AdafactorArgs{.step_size = StepSize::Given, .weight_decay = kDecay});
       }},
      // PyTorch rounds its products to bf16, which are summed in another order here.
      {"muon", 1e-3, 1e-4, [](Parameters& p) {
         return std::make_unique<Muon>(p,
                                       MuonArgs{.weight_decay = kDecay, .others = {.weight_decay = kDecay}});
       }}};
  return tried;
}

class L06_Golden : public ::testing::TestWithParam<const char*> {
 protected:
  Context context{GetParam()};
  Golden file{"tests/golden/optimizers.safetensors"};
};
INSTANTIATE_TEST_SUITE_P(Devices, L06_Golden, ::testing::ValuesIn(devices_with_data()),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(L06_Golden, TenUpdatesWithTheSameGradients) {
  const std::pair<const char*, Shape> shapes[] = {
      {"h.0.wide", {6, 11}}, {"h.0.tall", {13, 5}}, {"h.0.bias", {7}}, {"wte", {9, 4}}};
  for (const Tried& t : all()) {
    Parameters parameters;
    for (const auto& [name, shape] : shapes)
      copy_from_host(parameters.add(name, shape, {}).value, file.read(std::string("first.") + name, shape));
    const auto optimizer = t.make(parameters);
    context.device.set(&StepScalars::updates, int64_t(0));
    for (int step = 0; step < 10; ++step) {
      for (Parameter& p : parameters) {
        const std::string name = "grad." + std::to_string(step) + "." + p.name;
        p.leaf.grad = from_host(context.device, file.read(name, p.value.shape()), p.value.shape(), DType::F32,
                                Kind::Gradient, name);
        p.leaf.empty = false;
      }
      optimizer->step(t.rate);
    }
    double worst = 0;
    for (const Parameter& p : parameters) {
      const std::vector<double> want = file.read(t.name + ("." + p.name), p.value.shape()),
                                got = to_host<double>(p.value);
      const double largest = std::abs(*std::max_element(want.begin(), want.end(), Golden::smaller));
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], t.tolerance * largest) << t.name << ", " << p.name << " element " << i;
        worst = std::max(worst, std::abs(got[i] - want[i]) / (t.tolerance * largest));
      }
    }
    RecordProperty(std::string("% of budget used by ") + t.name, std::to_string(100 * worst));
  }
}

TEST_P(L06_Golden, TenStepsOfAGpt) {
  Golden gpt{"tests/golden/gpt.safetensors"};
  for (const Tried& t : all()) {
    Transformer model({.vocab = 65, .context = 16, .layers = 2, .heads = 4, .channels = 32});
    gpt.read_weights(model.parameters);
    const Tensor ids = gpt.read_ids("ids", {4, 16}), targets = gpt.read_ids("targets", {4, 16});
    const std::vector<double> losses = file.read(std::string("losses.") + t.name, {10});
    const auto optimizer = t.make(model.parameters);
    context.device.set(&StepScalars::updates, int64_t(0));
    for (int step = 0; step < 10; ++step) {
      Tape tape;
      const Tensor loss = model.loss(ids, targets);
      EXPECT_NEAR(item(loss), losses[step], 1e-4 * losses[step]) << t.name << ", step " << step;
      model.parameters.zero_grad();
      tape.backward(loss);
      optimizer->step(t.rate);
    }
  }
}

}  // namespace
}  // namespace gradus
