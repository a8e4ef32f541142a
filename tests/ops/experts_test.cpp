// The ops of a mixture of experts: a whole layer compared with a naive one, its gradients, the gradients of
// its routing, and what the ops refuse.
#include <gtest/gtest.h>

#include <cmath>

#include "src/autograd/gradcheck.h"
#include "src/core/rng.h"
#include "tests/devices.h"
#include "tests/ops/ops_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
Values normals(int64_t n, uint64_t stream) {
  Rng rng(11, stream);
  Values values(static_cast<size_t>(n));
  for (double& v : values) v = rng.normal();
  return values;
}

struct Layer {  // a layer whose experts are matrices (out, in)
  ExpertShape s;
  int64_t in = 5, out = 3;
  Values x = normals(s.tokens() * in, 1), logits = normals(s.tokens() * s.E, 2),
         w = normals(s.E * out * in, 3);

  Tensor operator()(In x) const {
    const Routing routing = choose_experts(x[1], s.chosen, s.capacity);
    return combine_experts(expert_linear(dispatch(x[0], routing), x[2]), routing);
  }
  std::vector<GradcheckInput> inputs() const {
    return {{{s.B, s.T, in}, x}, {{s.B, s.T, s.E}, logits}, {{s.E, out, in}, w}};
  }
  // Computes each token's output from its experts, in descending order of their logits.
  Values naive() const {
    Values y(static_cast<size_t>(s.tokens() * out));
    for (int64_t b = 0; b < s.B; ++b) {
      std::vector<int64_t> taken(static_cast<size_t>(s.E));
      for (int64_t t = b * s.T; t < (b + 1) * s.T; ++t) add_token(t, taken, y.data() + t * out);
    }
    return y;
  }
  void add_token(int64_t t, std::vector<int64_t>& taken, double* y) const {
    std::vector<int64_t> chosen;
    double sum = 0;
    for (int64_t j = 0; j < s.chosen; ++j) {
      int64_t best = -1;
      for (int64_t e = 0; e < s.E; ++e)
        if (std::find(chosen.begin(), chosen.end(), e) == chosen.end() &&
            (best < 0 || logits[t * s.E + e] > logits[t * s.E + best]))
          best = e;
      chosen.push_back(best);
      sum += std::exp(logits[t * s.E + best]);
    }
    for (const int64_t e : chosen) {
      if (taken[e]++ >= s.capacity) continue;
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i)
          y[o] += std::exp(logits[t * s.E + e]) / sum * w[(e * out + o) * in + i] * x[t * in + i];
    }
  }
};
// One expert; one choice; all experts chosen; a capacity of 0, of T, and one that is too small for all
// choices.
std::vector<Layer> layers() {
  return {{{2, 5, 4, 2, 3}}, {{2, 5, 4, 2, 1}}, {{1, 7, 3, 1, 7}}, {{2, 3, 3, 3, 3}},
          {{2, 3, 3, 3, 2}}, {{1, 4, 1, 1, 4}}, {{3, 4, 1, 1, 2}}, {{2, 3, 4, 2, 0}}};
}

struct L21_Experts : TapeTest {};

TEST_F(L21_Experts, ALayerIsTheNaiveOneOnEveryDevice) {
  for (const char* device : devices_with_data())
    for (const DType t : {DType::F64, DType::F32, DType::BF16}) {
      if (t == DType::F64 && device != std::string("cpu")) continue;
      const Context here(device, 5);
      for (const Layer& layer : layers()) {
        std::vector<Tensor> x;
        for (const GradcheckInput& input : layer.inputs())
          x.push_back(from_host(current().device, input.values, input.shape, t, Kind::Data, "x"));
        const Values got = to_host<double>(layer(x)), expected = layer.naive();
        ASSERT_EQ(got.size(), expected.size());
        const double error = t == DType::F64 ? 1e-14 : t == DType::F32 ? 0x1p-19 : 0x1p-3;
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], error) << device << " " << name_of(t) << ", element " << i;
      }
    }
}

// Gradients of x, of the router's logits and of the experts' weights together; no two logits are equal.
TEST_F(L21_Experts, GradientsOfALayer) {
  for (const Layer& layer : layers()) {
    if (layer.s.capacity == 0) continue;  // all gradients are 0: tested below
    const GradcheckResult right = gradcheck(layer, layer.inputs());
    EXPECT_TRUE(right.passed()) << right.where;
    for (const int input : {0, 1, 2}) {
      if (input == 1 && layer.s.chosen == 1) continue;  // the one weight is 1, so the router has no gradient
      EXPECT_FALSE(gradcheck(layer, layer.inputs(), 1, 1.01, input).passed())
          << "a 1 % wrong gradient of input " << input << " passed";
    }
  }
}

TEST_F(L21_Experts, WithoutPlacesTheOutputAndAllGradientsAreZero) {
  for (const char* device : devices_with_data()) {
    Context here(device, 5);
    const Layer layer{{2, 3, 4, 2, 0}};
    std::vector<Tensor> x;
    std::vector<Leaf> leaves(3);
    for (const GradcheckInput& input : layer.inputs()) {
      x.push_back(from_host(here.device, input.values, input.shape, DType::F32, Kind::Weight, "x"));
      attach(x.back(), leaves[x.size() - 1], "x");
    }
    Tape tape;
    const Tensor y = layer(x);
    EXPECT_EQ(to_host<double>(y), Values(18, 0.0));
    tape.backward(y, from_host(here.device, normals(18, 4), y.shape(), DType::F32, Kind::Data, "dy"));
    for (const Leaf& leaf : leaves)
      EXPECT_EQ(to_host<double>(leaf.grad), Values(size_t(leaf.shape.numel()), 0.0)) << device;
  }
}

// <dispatch(x), dy> = <x, dx>, where dx is the sum of dy over each token's places.
TEST_F(L21_Experts, DispatchPutsEachTokenInItsPlaces) {
  const Values x{1, 2, 3, 4, 5, 6}, dy{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  Tensor table = trains(tensor(x, {2, 3, 1}));
  Tape tape;
  const Tensor rows = dispatch(table, some_routing());
  EXPECT_EQ(rows.shape(), (Shape{3, 2, 2, 1}));
  EXPECT_EQ(to_host<double>(rows), (Values{1, 2, 4, 0, 1, 3, 5, 6, 2, 0, 4, 5}));
  tape.backward(rows, tensor(dy, rows.shape()));
  EXPECT_EQ(to_host<double>(leaf.grad), (Values{1 + 16, 2 + 256, 32, 4 + 1024, 64 + 2048, 128}));
}

TEST_F(L21_Experts, TheRoutingOfLogits) {
  const Routing r =
      choose_experts(tensor({2, 1, 0, 2, 0, 1, 1, 0, -1, 1, 0, 2, 0, 2, 1, 0, 1, 2}, {2, 3, 3}), 2, 2);
  const Routing expected = some_routing();
  EXPECT_EQ(r.shape, expected.shape);
  for (const auto& [got, right] :
       {std::pair(r.experts, expected.experts), {r.slots, expected.slots}, {r.tokens, expected.tokens}}) {
    EXPECT_EQ(got.shape(), right.shape());
    EXPECT_EQ(to_host<int32_t>(got), to_host<int32_t>(right));
  }
  const Values weights = to_host<double>(r.weights);
  EXPECT_EQ(r.weights.shape(), (Shape{2, 3, 2}));
  for (size_t i = 0; i < weights.size(); ++i)  // the logits of a pair differ by 1
    EXPECT_NEAR(weights[i], i % 2 ? 1 / (1 + M_E) : M_E / (1 + M_E), 1e-6);
}

TEST_F(L21_Experts, GradientsOfTheBalanceLossWithAndWithoutCount) {
  for (const double count : {0.0, 12.5}) {
    const auto f = [&](In x) {
      const Tensor given = count > 0 ? tensor({count}, {1}, DType::F64) : Tensor();
      return balance_loss(x[0], some_routing(), 0.3, given);
    };
    const std::vector<GradcheckInput> logits{{{2, 3, 3}, normals(18, 1)}};
    const GradcheckResult right = gradcheck(f, logits);
    EXPECT_TRUE(right.passed()) << "count " << count << ": " << right.where;
    EXPECT_FALSE(gradcheck(f, logits, 1, 1.01).passed()) << "a 1 % wrong gradient passed";
  }
}

// The tape treats f as a constant; finite differences agree as long as no choice changes.
TEST_F(L21_Experts, TheBalanceLossOfTheLogitsThatChose) {
  const auto f = [](In x) { return balance_loss(x[0], choose_experts(x[0], 2, 1), 0.3); };
  const std::vector<GradcheckInput> logits{{{2, 5, 4}, normals(40, 1)}};
  EXPECT_TRUE(gradcheck(f, logits).passed());
  EXPECT_FALSE(gradcheck(f, logits, 1, 1.01).passed());
}

// The gradients of a router with experts, and the bytes at the peak.
struct Trained {
  std::vector<Values> gradients;
  Usage peak;
};
Trained train(const char* device, bool recompute) {
  const Layer layer{{2, 5, 4, 2, 2}};
  const std::pair<Shape, Values> inputs[] = {
      {{2, 5, 5}, layer.x}, {{4, 5}, normals(20, 4)}, {{4, 5, 5}, normals(100, 5)}};
  Context here(device, 5);
  std::vector<Tensor> x;
  std::vector<Leaf> leaves(3);
  for (const auto& [shape, values] : inputs) {
    x.push_back(from_host(here.device, values, shape, DType::F32, Kind::Weight, "x"));
    attach(x.back(), leaves[x.size() - 1], "x");
  }
  const auto f = [&](const Tensor& input) {
    const Routing routing = choose_experts(linear(input, x[1]), 2, 2);
    return combine_experts(expert_linear(dispatch(input, routing), x[2]), routing);
  };
  {
    Tape tape;
    const Tensor y = recompute ? checkpoint(x[0], f) : f(x[0]), logits = linear(y, x[1]);
    tape.backward(balance_loss(logits, choose_experts(logits, 1, 3), 0.5));
  }
  Trained trained{{}, here.device.meter().at_peak()};
  if (here.device.has_data())
    for (const Leaf& leaf : leaves) trained.gradients.push_back(to_host<double>(leaf.grad));
  return trained;
}
TEST_F(L21_Experts, BytesAreTheSameOnEveryDeviceAndOnMeta) {
  for (const bool recompute : {false, true})
    for (const char* device : devices_with_data())
      for (int k = 0; k < kKinds; ++k)
        EXPECT_EQ(train(device, recompute).peak.by_kind[k], train("meta", recompute).peak.by_kind[k])
            << device << ", " << name_of(Kind(k));
}
TEST_F(L21_Experts, RecomputationChoosesTheSameExperts) {
  for (const char* device : devices_with_data())
    EXPECT_EQ(train(device, true).gradients, train(device, false).gradients) << device;
}

TEST_F(L21_Experts, TheBalanceLossIsOneNumberOfTheTypeOfStatistics) {
  for (const DType t : {DType::F64, DType::F32, DType::BF16}) {
    const Tensor loss = balance_loss(tensor(Values(18, 1.0), {2, 3, 3}, t), some_routing(), 0.25);
    EXPECT_EQ(loss.shape(), Shape{});
    EXPECT_EQ(loss.dtype(), statistics_dtype(t));
    EXPECT_NEAR(item(loss), 0.25, 1e-7);
  }
}

TEST(L21_OpRefusals, OfAMixtureOfExperts) {
  const Context context{"meta"};
  const auto of = [](const Shape& shape, DType t = DType::F32) {
    return Tensor(current().device, shape, t, Kind::Data, "x");
  };
  const Routing routing = choose_experts(of({2, 3, 4}), 2, 3);
  expect_refused("choose_experts: logits are [6,4]; they must be (B, T, E)", [&] {
    choose_experts(of({6, 4}), 2, 3);
  });
  for (const int64_t chosen : {0, 5})
    expect_refused("choose_experts: each token chooses " + std::to_string(chosen) + " of 4 experts", [&] {
      choose_experts(of({2, 3, 4}), chosen, 3);
    });
  for (const int64_t capacity : {-1, 4})
    expect_refused("choose_experts: an expert has " + std::to_string(capacity) + " places", [&] {
      choose_experts(of({2, 3, 4}), 2, capacity);
    });
  for (const Shape& x : {Shape{6, 5}, Shape{3, 3, 5}, Shape{2, 4, 5}, Shape{2, 3, 5, 1}})
    expect_refused("dispatch: x is", [&] { dispatch(of(x), routing); });
  for (const Shape& x : {Shape{24, 5}, Shape{3, 2, 3, 5}, Shape{4, 3, 3, 5}, Shape{4, 2, 2, 5}})
    expect_refused("combine_experts: the rows are", [&] { combine_experts(of(x), routing); });
  for (const Shape& x : {Shape{3, 2, 4}, Shape{2, 2, 4}, Shape{2, 3, 3}, Shape{24}})
    expect_refused("balance_loss: the logits are", [&] { balance_loss(of(x), routing, 1); });
  for (const Tensor& count : {of({2}), of({1}, DType::BF16), of({1}, DType::F64)})
    expect_refused("balance_loss: count is", [&] { balance_loss(of({2, 3, 4}), routing, 1, count); });
  for (const auto& [x, w] : {std::pair(Shape{3, 2, 4}, Shape{2, 5, 4}),
                             {Shape{3, 2, 4}, Shape{3, 4, 5}},
                             {Shape{3, 2, 4}, Shape{15, 4}},
                             {Shape{4}, Shape{4, 5, 4}}})
    expect_refused("expert_linear: x is", [&, x = x, w = w] { expert_linear(of(x), of(w)); });
}

}  // namespace
}  // namespace gradus
