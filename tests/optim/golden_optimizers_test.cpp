// The optimizers compared with PyTorch's and Hugging Face's (tests/golden/make_optimizers.py), in fp32: ten
// updates with given gradients, and ten training steps of a GPT.
#include "src/nn/transformer.h"
#include "src/optim/muon.h"
#include "tests/mistakes.h"
#include "tests/nn/golden_testing.h"
#include "tests/optim/optim_testing.h"

namespace gradus {
namespace {

constexpr float kDecay = 0.1f;
constexpr double kPrecise = 1e-6;  // relative to the largest weight of a parameter

using Make = std::function<std::unique_ptr<Optimizer>(Parameters&)>;

class L06_Golden : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_pytorchs(const std::string& name, double rate, double tolerance, const Make& make) {
    expect_ten_updates(name, rate, tolerance, make);
    expect_ten_steps_of_a_gpt(name, rate, make);
  }
  template <class O, class Args>
  void expect_pytorchs(const std::string& name, double rate, double tolerance, const Args& args) {
    expect_pytorchs(name, rate, tolerance, [&](Parameters& p) { return std::make_unique<O>(p, args); });
  }

 private:
  void set_gradients(Parameters& parameters, int step);
  void expect_ten_updates(const std::string& name, double rate, double tolerance, const Make& make);
  void expect_ten_steps_of_a_gpt(const std::string& name, double rate, const Make& make);

  Context context{GetParam()};
  Golden file{"tests/golden/optimizers.safetensors"};
};
ON_DEVICES_WITH_DATA(L06_Golden);

void L06_Golden::set_gradients(Parameters& parameters, int step) {
  for (Parameter& p : parameters) {
    const std::string name = "grad." + std::to_string(step) + "." + p.name;
    set_gradient(p, file.read(name, p.value.shape()));
  }
}

void L06_Golden::expect_ten_updates(const std::string& name, double rate, double tolerance,
                                    const Make& make) {
  Parameters parameters;
  const std::pair<const char*, Shape> shapes[] = {
      {"h.0.wide", {6, 11}}, {"h.0.tall", {13, 5}}, {"h.0.bias", {7}}, {"wte", {9, 4}}};
  for (const auto& [of, shape] : shapes)
    copy_from_host(parameters.add(of, shape, {}).value, file.read(std::string("first.") + of, shape));
  const auto optimizer = make(parameters);
  for (int step = 0; step < 10; ++step) {
    set_gradients(parameters, step);
    optimizer->step(rate);
  }
  double worst = 0;
  for (const Parameter& p : parameters) {
    const std::vector<double> want = file.read(name + "." + p.name, p.value.shape()),
                              got = to_host<double>(p.value);
    const double largest = std::abs(*std::max_element(want.begin(), want.end(), Golden::smaller));
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], tolerance * largest) << name << ", " << p.name << " element " << i;
      worst = std::max(worst, std::abs(got[i] - want[i]) / (tolerance * largest));
    }
  }
  RecordProperty("error / allowed error, %, of " + name, std::to_string(100 * worst));
}

void L06_Golden::expect_ten_steps_of_a_gpt(const std::string& name, double rate, const Make& make) {
  Golden gpt{"tests/golden/gpt.safetensors"};
  Transformer model({.vocab = 65, .context = 16, .layers = 2, .heads = 4, .channels = 32});
  gpt.read_weights(model.parameters);
  const Tensor ids = gpt.read_ids("ids", {4, 16}), targets = gpt.read_ids("targets", {4, 16});
  const std::vector<double> losses = file.read("losses." + name, {10});
  const auto optimizer = make(model.parameters);
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    const Tensor loss = model.loss(ids, targets);
    EXPECT_NEAR(item(loss), losses[step], 1e-4 * losses[step]) << name << ", step " << step;
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer->step(rate);
  }
}

// How far a weight of this shape moves in `updates` updates with rate 1 and the same gradient.
template <class O, class Args>
std::vector<double> moved(const Args& args, const Shape& shape, const std::vector<double>& gradient,
                          int updates) {
  Parameters parameters;
  Parameter& w = parameters.add("w", shape, {});
  w.assign(std::vector<double>(gradient.size(), 0));
  O optimizer(parameters, args);
  for (int step = 0; step < updates; ++step) {
    set_gradient(w, gradient);
    optimizer.step(1);
  }
  std::vector<double> moved = to_host<double>(w.value);
  for (double& x : moved) x = -x;
  return moved;
}
TEST_P(L06_Golden, SgdIsPyTorchs) {
  expect_pytorchs<Sgd>("sgd", 0.03, kPrecise, SgdArgs{.weight_decay = kDecay});
}
TEST_P(L06_Golden, MomentumIsPyTorchs) {
  RecordProperty("exercise", "06.2");
  expect_pytorchs<Sgd>("momentum", 0.02, kPrecise, SgdArgs{.momentum = 0.9f, .weight_decay = kDecay});
  expect_pytorchs<Sgd>("nesterov", 0.02, kPrecise,
                       SgdArgs{.momentum = 0.9f, .weight_decay = kDecay, .nesterov = true});
  const double plain = moved<Sgd>(SgdArgs{.momentum = 0.5f}, {1}, {1}, 2)[0];
  EXPECT_EQ(plain, 1 + 1.5) << usual_mistake(
      {{plain == 0.5 + 0.75, "the gradient is damped by 1 - momentum, which Adam does and SGD does not"},
       {plain == 1 + 1, "the momentum has forgotten the update before"}});
  const double nesterov = moved<Sgd>(SgdArgs{.momentum = 0.5f, .nesterov = true}, {1}, {1}, 2)[0];
  EXPECT_EQ(nesterov, 1.5 + 1.75) << usual_mistake(
      {{nesterov == 1 + 1.5, "Nesterov's step uses the momentum that this gradient is in already"}});
}
TEST_P(L06_Golden, AdamWIsPyTorchs) {
  expect_pytorchs<AdamW>("adamw", 1e-3, kPrecise, AdamWArgs{.beta2 = 0.95f, .weight_decay = kDecay});
}
// PyTorch has relative steps, Hugging Face given ones.
TEST_P(L06_Golden, AdafactorIsPyTorchsAndHuggingFaces) {
  RecordProperty("exercise", "06.4");
  expect_pytorchs<Adafactor>("adafactor", 1e-2, kPrecise, AdafactorArgs{.weight_decay = kDecay});
  expect_pytorchs<Adafactor>("adafactor_given", 1e-3, kPrecise,
                             AdafactorArgs{.step_size = StepSize::Given, .weight_decay = kDecay});
  // The mean squares are 10 in both rows, and 4 and 16 in the columns.
  const std::vector<double> step =
      moved<Adafactor>(AdafactorArgs{.step_size = StepSize::Given}, {2, 2}, {2, 4, 2, 4}, 1);
  EXPECT_NEAR(step[0], 1, 1e-4) << usual_mistake(
      {{std::abs(step[0] * step[0] - 0.1) < 1e-4, "rows times columns is not divided by the mean of all"},
       {std::abs(step[0] - 2 * step[1]) < 1e-4,
        "a column's factor is computed from squares; the step divides by their root"}});
}
// Products are rounded to bf16, as in PyTorch, whose sums have a different order.
TEST_P(L06_Golden, MuonIsPyTorchs) {
  RecordProperty("exercise", "06.5");
  expect_pytorchs<Muon>("muon", 1e-3, 1e-4,
                        MuonArgs{.weight_decay = kDecay, .others = {.weight_decay = kDecay}});
  const auto of_half = [](double a, double b, double c) { return a / 2 + b / 8 + c / 32; };
  const double x = item(
      newton_schulz(from_host<double>(current().device, {0.5}, {1, 1}, DType::F32, Kind::Temporary, "x"), 1));
  EXPECT_NEAR(x, of_half(3.4445, -4.775, 2.0315), 1e-5)
      << usual_mistake({{std::abs(x - of_half(3.4445, 2.0315, -4.775)) < 1e-5,
                         "b and c are exchanged: b belongs to the lower power"},
                        {std::abs(x - of_half(0, -4.775, 2.0315)) < 1e-5, "the term a x is missing"}});
}

// Each update begins with the momentum that the previous update left in the state.
TEST(L06_Muon, ItsMomentumIsTheMeanOfItsGradients) {
  RecordProperty("exercise", "06.7");
  const Context context("emu");  // on emu exercise 06.2 need not be solved
  Parameters parameters;
  Parameter& w = parameters.add("h.0.w", {2, 3}, {});
  copy_from_host(w.value, {1, 2, 3, 4, 5, 6});
  Muon muon(parameters);
  double mean = 0;
  for (const double g : {1.0, -3.0, 2.0}) {
    set_gradient(w, std::vector<double>(6, g));
    muon.step(0.01);
    mean = 0.95 * mean + 0.05 * g;
    for (const double m : to_host<double>(muon.states[0].tensors[0])) EXPECT_NEAR(m, mean, 1e-6);
  }
}

}  // namespace
}  // namespace gradus
