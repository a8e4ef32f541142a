// The optimizers against PyTorch's and Hugging Face's (tests/golden/make_optimizers.py), in fp32: ten updates
// with the same gradients, and ten steps of a GPT with each one's own.
#include "src/nn/transformer.h"
#include "src/optim/muon.h"
#include "tests/nn/golden_testing.h"

namespace gradus {
namespace {

struct Tried {
  const char* name;
  const char* exercise;    // which it needs
  double rate, tolerance;  // of the largest weight
  std::function<std::unique_ptr<Optimizer>(Parameters&)> make;
};
template <class O, class Args>
Tried tried(const char* name, const char* exercise, double rate, double tolerance, const Args& args) {
  return {name, exercise, rate, tolerance, [args](Parameters& p) { return std::make_unique<O>(p, args); }};
}
const std::vector<Tried>& all() {
  constexpr float kDecay = 0.1f;
  static const std::vector<Tried> all{
      tried<Sgd>("sgd", "", 0.03, 1e-6, SgdArgs{.weight_decay = kDecay}),
      tried<Sgd>("momentum", "06.1", 0.02, 1e-6, SgdArgs{.momentum = 0.9f, .weight_decay = kDecay}),
      tried<Sgd>("nesterov", "06.1", 0.02, 1e-6,
                 SgdArgs{.momentum = 0.9f, .weight_decay = kDecay, .nesterov = true}),
      tried<AdamW>("adamw", "", 1e-3, 1e-6, AdamWArgs{.beta2 = 0.95f, .weight_decay = kDecay}),
      tried<Adafactor>("adafactor", "06.2", 1e-2, 1e-6, AdafactorArgs{.weight_decay = kDecay}),
      tried<Adafactor>("adafactor_given", "06.2", 1e-3, 1e-6,
                       AdafactorArgs{.step_size = StepSize::Given, .weight_decay = kDecay}),
      // PyTorch rounds its products to bf16, which are summed in another order here.
      tried<Muon>("muon", "06.3", 1e-3, 1e-4,
                  MuonArgs{.weight_decay = kDecay, .others = {.weight_decay = kDecay}})};
  return all;
}
std::vector<const char*> names() {
  std::vector<const char*> names;
  for (const Tried& t : all()) names.push_back(t.name);
  return names;
}

class L06_Golden : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    if (*t.exercise) RecordProperty("exercise", t.exercise);
  }
  void set_gradients(Parameters& parameters, int step) {
    for (Parameter& p : parameters) {
      const std::string name = "grad." + std::to_string(step) + "." + p.name;
      p.leaf.grad = from_host(context.device, file.read(name, p.value.shape()), p.value.shape(), DType::F32,
                              Kind::Gradient, name);
      p.leaf.empty = false;
    }
  }
  const Tried& t = *std::find_if(all().begin(), all().end(),
                                 [](const Tried& one) { return one.name == std::get<1>(GetParam()); });
  Context context{std::get<0>(GetParam())};
  Golden file{"tests/golden/optimizers.safetensors"};
};
INSTANTIATE_TEST_SUITE_P(Devices, L06_Golden,
                         ::testing::Combine(::testing::ValuesIn(devices_with_data()),
                                            ::testing::ValuesIn(names())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

const std::pair<const char*, Shape> kShapes[] = {
    {"h.0.wide", {6, 11}}, {"h.0.tall", {13, 5}}, {"h.0.bias", {7}}, {"wte", {9, 4}}};

TEST_P(L06_Golden, TenUpdatesWithTheSameGradients) {
  Parameters parameters;
  for (const auto& [name, shape] : kShapes)
    copy_from_host(parameters.add(name, shape, {}).value, file.read(std::string("first.") + name, shape));
  const auto optimizer = t.make(parameters);
  for (int step = 0; step < 10; ++step) {
    set_gradients(parameters, step);
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
  RecordProperty("% of budget used", std::to_string(100 * worst));
}

TEST_P(L06_Golden, TenStepsOfAGpt) {
  Golden gpt{"tests/golden/gpt.safetensors"};
  Transformer model({.vocab = 65, .context = 16, .layers = 2, .heads = 4, .channels = 32});
  gpt.read_weights(model.parameters);
  const Tensor ids = gpt.read_ids("ids", {4, 16}), targets = gpt.read_ids("targets", {4, 16});
  const std::vector<double> losses = file.read(std::string("losses.") + t.name, {10});
  const auto optimizer = t.make(model.parameters);
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    const Tensor loss = model.loss(ids, targets);
    EXPECT_NEAR(item(loss), losses[step], 1e-4 * losses[step]) << t.name << ", step " << step;
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer->step(t.rate);
  }
}

// What an update leaves in the state is what the next one begins with.
TEST(L06_Muon, ItsMomentumIsTheMeanOfItsGradients) {
  RecordProperty("exercise", "06.4");
  const Context context("emu");  // where 06.1 is not open
  Parameters parameters;
  Parameter& w = parameters.add("h.0.w", {2, 3}, {});
  copy_from_host(w.value, {1, 2, 3, 4, 5, 6});
  Muon muon(parameters);
  double mean = 0;
  for (const double g : {1.0, -3.0, 2.0}) {
    w.leaf.grad = from_host(current().device, std::vector<double>{g, g, g, g, g, g}, {2, 3}, DType::F32,
                            Kind::Gradient, "g");
    w.leaf.empty = false;
    muon.step(0.01);
    mean = 0.95 * mean + 0.05 * g;
    for (const double m : to_host<double>(muon.states[0].tensors[0])) EXPECT_NEAR(m, mean, 1e-6);
  }
}

}  // namespace
}  // namespace gradus
