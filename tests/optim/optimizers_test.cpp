// Optimizers against their algorithms in fp64: each argument, every precision, decay where it is flagged,
// what counts as a step, clipping on both sides of the norm, the corners of the schedule.
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/rng.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

double rounded(DType t, double x) {
  return t == DType::F64    ? x
         : t == DType::F32  ? double(float(x))
         : t == DType::BF16 ? double(float(bf16(float(x))))
                            : double(float(fp16(float(x))));
}
double epsilon_of(DType t) {
  return t == DType::F64 ? 0x1p-53 : t == DType::F32 ? 0x1p-24 : t == DType::BF16 ? 0x1p-8 : 0x1p-11;
}

std::vector<double> normal(int64_t n, uint64_t stream) {
  Rng rng(6, stream);
  std::vector<double> values(n);
  for (double& v : values) v = rng.normal();
  return values;
}

void set_gradient(Parameter& p, const std::vector<double>& values) {
  p.leaf.grad =
      from_host(p.value.device(), values, p.value.shape(), p.precision.gradient, Kind::Gradient, "g");
  p.leaf.empty = false;
}

// Sizes on both sides of what a thread (1024) and a GPU's block (4096) take; vectors do not decay.
struct Model {
  Parameters parameters;
  explicit Model(const Precision& precision) {
    int i = 0;
    for (const Shape& shape :
         {Shape{3, 5}, Shape{1025}, Shape{3, 1366}, Shape{1}, Shape{4097}, Shape{2, 2}}) {
      Parameter& p = parameters.add(std::string(1, char('a' + i++)), shape, precision);
      Tensor kept = p.kept();
      copy_from_host(kept, normal(p.value.numel(), uint64_t(i)));
      p.round_master();
    }
    parameters.set_trainable(parameters.find("f"), false);
  }
};

// Away from zero, or 16-bit states of squares would vanish.
std::vector<double> gradient(const Parameter& p, int step) {
  std::vector<double> g = normal(p.value.numel(), uint64_t(100 * step));
  for (double& x : g) x += x < 0 ? -0.5 : 0.5;
  return g;
}

struct Rule {  // AdamW, or SGD
  bool adam;
  AdamWArgs adamw = {};
  SgdArgs sgd = {};
  std::unique_ptr<Optimizer> make(Parameters& p) const {
    if (adam) return std::make_unique<AdamW>(p, adamw);
    return std::make_unique<Sgd>(p, sgd);
  }
};

// One element: w, and the states m and v, after update number `step` with gradient g.
struct Element {
  double w, m = 0, v = 0, moved = 0;
  void update(const Rule& rule, const Precision& p, bool decays, double lr, double g, int step) {
    const double before = w;
    if (rule.adam) {
      const AdamWArgs& a = rule.adamw;
      const double b1 = a.beta1, b2 = a.beta2;
      m = b1 * m + (1 - b1) * g, v = b2 * v + (1 - b2) * g * g;
      if (decays) w -= lr * a.weight_decay * w;
      w -= lr * (m / (1 - std::pow(b1, step))) / (std::sqrt(v / (1 - std::pow(b2, step))) + a.eps);
    } else {
      const double with_decay = g + (decays ? double(rule.sgd.weight_decay) * w : 0);
      m = rule.sgd.momentum != 0 ? double(rule.sgd.momentum) * m + with_decay : with_decay;
      w -= lr * m;
    }
    w = rounded(p.master ? DType::F32 : p.value, w), m = rounded(p.state, m), v = rounded(p.state, v);
    moved += std::abs(w - before) + std::abs(before);
  }
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 const std::vector<double>& bound, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], bound[i]) << what << ", element " << i;
}

// Three updates, each with a learning rate, gradients and (the second) a clip factor of its own.
void expect_rule(const char* device, const Rule& rule, const Precision& precision) {
  Context context(device, 3);  // whose first update is number 1
  Model model(precision);
  const auto optimizer = rule.make(model.parameters);
  std::map<std::string, std::vector<Element>> expected;
  for (const Parameter& p : model.parameters)
    for (const double w : to_host<double>(p.kept())) expected[p.name].push_back({w});
  for (int step = 1; step <= 3; ++step) {
    const double lr = 0.1 / step;
    for (Parameter& p : model.parameters) set_gradient(p, gradient(p, step));
    if (step == 2) optimizer->clip_grad_norm(2);
    const double clip = step == 2 ? optimizer->scalars().clip_factor : 1;
    optimizer->step(lr);
    for (const Parameter& p : model.parameters) {
      const std::vector<double> g = to_host<double>(p.leaf.grad);
      for (size_t i = 0; i < g.size() && p.trainable(); ++i)
        expected[p.name][i].update(rule, precision, p.decay, double(float(lr)), clip * g[i], step);
    }
  }
  const DType kept = precision.master ? DType::F32 : precision.value;
  const auto check_all = [&](const std::string& name, const Tensor& got, double Element::*field, DType t) {
    std::vector<double> want, bound;  // a rounding of each update, and those of the arithmetic in fp32
    for (const Element& e : expected[name]) {
      want.push_back(e.*field);
      bound.push_back((4 * epsilon_of(t) + 40 * epsilon_of(kept == DType::F64 ? kept : DType::F32)) *
                      (field == &Element::w ? e.moved : 8));
    }
    expect_near(to_host<double>(got), want, bound, name + " " + got.storage().name());
  };
  for (Parameter& p : model.parameters) {
    check_all(p.name, p.kept(), &Element::w, kept);
    if (!precision.master) continue;
    const std::vector<double> master = to_host<double>(p.master), value = to_host<double>(p.value);
    for (size_t i = 0; i < value.size(); ++i)
      ASSERT_EQ(value[i], rounded(precision.value, master[i])) << p.name;
  }
  for (const Optimizer::State& s : optimizer->states)
    for (size_t i = 0; i < s.tensors.size(); ++i)
      check_all(s.parameter->name, s.tensors[i], i == 0 ? &Element::m : &Element::v, precision.state);
}

struct L03_OptimContract : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
  std::vector<Precision> precisions() const {
    std::vector<Precision> all{uniform(DType::F32), mixed(DType::BF16), mixed(DType::F16)};
    if (std::string_view(GetParam()) == "cpu") all.push_back(uniform(DType::F64));
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, L03_OptimContract, ::testing::ValuesIn(devices_with_data()),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(L03_OptimContract, AdamWIsTheAlgorithmInEachOfItsArguments) {
  for (const Precision& p : precisions())
    for (const AdamWArgs& args :
         {AdamWArgs{}, AdamWArgs{.beta1 = 0.5f}, AdamWArgs{.beta1 = 0}, AdamWArgs{.beta2 = 0.7f},
          AdamWArgs{.eps = 0.3f}, AdamWArgs{.weight_decay = 0.8f}})
      expect_rule(GetParam(), {.adam = true, .adamw = args}, p);
}

TEST_P(L03_OptimContract, SgdIsTheAlgorithmInEachOfItsArguments) {
  for (const Precision& p : precisions())
    for (const SgdArgs& args : {SgdArgs{}, SgdArgs{.momentum = 0.9f}, SgdArgs{.weight_decay = 0.8f},
                                SgdArgs{.momentum = 0.5f, .weight_decay = 0.4f}})
      expect_rule(GetParam(), {.adam = false, .sgd = args}, p);
}

TEST_P(L03_OptimContract, SixteenBitWeightsAndStatesAreRoundedOnceAnUpdate) {
  for (const DType t : {DType::BF16, DType::F16})
    for (const bool adam : {true, false})
      expect_rule(GetParam(), {.adam = adam, .adamw = {.weight_decay = 0.5f}, .sgd = {.momentum = 0.5f}},
                  uniform(t));
}

TEST_P(L03_OptimContract, StatesHaveNamesKindsAndDtypes) {
  constexpr Precision kOddOnes[] = {{DType::BF16, DType::BF16, DType::F32, true},
                                    {DType::F16, DType::F32, DType::F16, false}};
  for (const Precision& precision :
       {uniform(DType::F32), mixed(DType::BF16), uniform(DType::F16), kOddOnes[0], kOddOnes[1]}) {
    Model model(precision);
    const Sgd plain(model.parameters), momentum(model.parameters, {.momentum = 0.5f});
    const AdamW adamw(model.parameters);
    using Names = std::vector<std::string>;
    for (const auto& [optimizer, names] :
         {std::pair<const Optimizer*, Names>(&plain, {}), {&momentum, {"momentum"}}, {&adamw, {"m", "v"}}}) {
      ASSERT_EQ(optimizer->states.size(), 5u) << "f does not train";
      for (const Optimizer::State& s : optimizer->states) {
        ASSERT_EQ(s.tensors.size(), names.size());
        for (size_t i = 0; i < s.tensors.size(); ++i) {
          const Tensor& state = s.tensors[i];
          EXPECT_EQ(state.storage().name(), s.parameter->name + "." + names[i]);
          EXPECT_EQ(state.storage().kind(), Kind::Optimizer);
          EXPECT_EQ(state.dtype(), precision.state);
          EXPECT_EQ(state.shape(), s.parameter->value.shape());
          EXPECT_EQ(to_host<double>(state), std::vector<double>(state.numel(), 0.0));
        }
      }
    }
  }
}

TEST_P(L03_OptimContract, AnUpdateCountsIfItWasMade) {
  Model model(uniform(DType::F32));
  AdamW optimizer(model.parameters);
  for (Parameter& p : model.parameters) set_gradient(p, normal(p.value.numel(), 1));
  const auto weights = [&] {
    std::vector<std::vector<double>> all;
    for (const Parameter& p : model.parameters) all.push_back(to_host<double>(p.value));
    for (const Optimizer::State& s : optimizer.states) all.push_back(to_host<double>(s.tensors[0]));
    return all;
  };
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(optimizer.scalars().updates, step);
    EXPECT_EQ(context.device.scalars().step, step + 1) << "the attempt at hand";
    optimizer.step(0.1);
    context.end_attempt();
  }
  const auto before = weights();
  model.parameters.find("e").leaf.zero();
  expect_refused("'e' has no gradient", [&] { optimizer.step(0.1); });
  EXPECT_EQ(optimizer.scalars().updates, 3);
  EXPECT_EQ(context.device.scalars().step, 4);
  EXPECT_EQ(weights(), before) << "an update that is refused changes nothing";
  EXPECT_EQ(optimizer.scalars().learning_rate, 0.1f);
}

// min(1, max_norm / (norm + 1e-6)), the norm over whatever trains and has a gradient.
TEST_P(L03_OptimContract, TheClipFactorOnBothSidesOfTheNorm) {
  for (const double size : {1.0, 1e-4, 1e18}) {
    Parameters parameters;
    const std::pair<const char*, std::vector<double>> gradients[] = {
        {"a", {3, -4}}, {"b", {12}}, {"frozen", {100}}, {"empty", {100}}};
    for (const auto& [name, g] : gradients) {
      Parameter& p = parameters.add(name, {int64_t(g.size())}, {});
      std::vector<double> scaled = g;
      for (double& x : scaled) x *= size;
      set_gradient(p, scaled);
    }
    parameters.set_trainable(parameters.find("frozen"), false);
    parameters.find("empty").leaf.zero();
    const double norm = 13 * size;
    Sgd optimizer(parameters);
    for (const double share : {0.01, 0.9, 0.9999, 1.0, 1.0001, 1.1, 100.0, 0.0, -1.0}) {
      const float max_norm = float(share * norm);
      optimizer.clip_grad_norm(max_norm);
      const UpdateScalars scalars = optimizer.scalars();
      EXPECT_NEAR(scalars.grad_norm, norm, 1e-6 * norm);
      const double factor = share <= 0 ? 1 : std::min(1.0, double(max_norm) / (norm + 1e-6));
      EXPECT_NEAR(scalars.clip_factor, factor, 2e-7) << "norm " << norm << ", at most " << max_norm;
    }
  }
}

// Decay is not clipped; a factor lasts for one update; the last call's counts; gradients stay as they are.
TEST_P(L03_OptimContract, ClippingScalesGradientsAndNothingElse) {
  Parameters parameters;
  Parameter& w = parameters.add("w", {1, 2}, {});
  copy_from_host(w.value, {8, -16});
  set_gradient(w, {3, 4});
  Sgd sgd(parameters, {.weight_decay = 0.5f});
  sgd.clip_grad_norm(1), sgd.clip_grad_norm(2.5);
  sgd.step(0.5);  // w - (g/2 + w/2)/2
  const std::vector<double> once = to_host<double>(w.value);
  EXPECT_NEAR(once[0], 8 - 0.5 * (1.5 + 4), 1e-5);
  EXPECT_NEAR(once[1], -16 - 0.5 * (2 - 8), 1e-5);
  EXPECT_EQ(to_host<double>(w.leaf.grad), (std::vector<double>{3, 4}));
  sgd.step(0.5);
  EXPECT_NEAR(to_host<double>(w.value)[0], once[0] - 0.5 * (3 + once[0] / 2), 1e-5);
}

TEST(L03_OptimContractAlone, TheScheduleAtItsCorners) {
  for (const int64_t warmup :
       {0, 1, 4}) {  // (s + 1) / warmup of the peak, which the first cosine step has, too
    for (int64_t s = 0; s < warmup; ++s)
      EXPECT_DOUBLE_EQ(warmup_cosine(s, warmup, 20, 3, 1), 3.0 * double(s + 1) / double(warmup));
    for (int64_t s = warmup; s < 20; ++s)
      EXPECT_DOUBLE_EQ(warmup_cosine(s, warmup, 20, 3, 1),
                       2 + std::cos(std::acos(-1.0) * double(s - warmup) / double(20 - warmup)));
    for (const int64_t s : {20, 21, 1000}) EXPECT_EQ(warmup_cosine(s, warmup, 20, 3, 1), 1);
  }
  EXPECT_EQ(warmup_cosine(2, 4, 4, 3, 1), 2.25);
  EXPECT_EQ(warmup_cosine(3, 4, 4, 3, 1), 3);
  EXPECT_EQ(warmup_cosine(4, 4, 4, 3, 1), 1) << "nothing is left for the cosine";
  EXPECT_EQ(warmup_cosine(6, 9, 4, 9, 1), 7) << "a run that ends within the warm-up";
  EXPECT_EQ(warmup_cosine(0, 0, 0, 3, 1), 1);
}

}  // namespace
}  // namespace gradus
