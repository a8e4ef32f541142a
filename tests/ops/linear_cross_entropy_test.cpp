// linear_cross_entropy compared with the two ops that it replaces: loss, gradients, what it counts and saves,
// and where the gradient of the weight is between the passes. (Compared with finite differences:
// gradients_test.cpp.)
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

using Ids = std::vector<int32_t>;
using Values = std::vector<double>;
constexpr int64_t N = 7, C = 5, V = 11;
const Ids kTargets{0, 10, -1, 3, 3, -1, 7};

Tensor normals(const Shape& shape, DType t, uint64_t stream) {
  Rng rng(16, stream);
  Values values(static_cast<size_t>(shape.numel()));
  for (double& v : values) v = rng.normal();
  return from_host(current().device, values, shape, t, Kind::Data, "x");
}

void expect_near(const Values& got, const Values& expected, double share, const char* what = "") {
  ASSERT_EQ(got.size(), expected.size());
  double most = 0;
  for (const double e : expected) most = std::max(most, std::abs(e));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], share * most) << what;
}

// x and a weight that train, and one step with both.
struct Head {
  Tensor x, weight, targets;
  Leaf of_x, of_weight;
  Head(DType t, const Ids& ids = kTargets)
      : x(normals({int64_t(ids.size()), C}, t, 1)),
        weight(normals({V, C}, t, 2)),
        targets(ids_of(ids, {int64_t(ids.size())})) {
    attach(x, of_x, "x"), attach(weight, of_weight, "weight");
  }
  Tensor loss(int64_t rows, const Tensor& count = {}) const {
    return rows == 0 ? cross_entropy(linear(x, weight), targets, count)
                     : linear_cross_entropy(x, weight, targets, count, rows);
  }
  double step(int64_t rows, const Tensor& count = {}) {
    Tape tape;
    const Tensor y = loss(rows, count);
    tape.backward(y);
    return item(y);
  }
  void zero() { of_x.zero(), of_weight.zero(); }
  Values gradients() const {
    Values both = to_host<double>(of_x.grad), more = to_host<double>(of_weight.grad);
    both.insert(both.end(), more.begin(), more.end());
    return both;
  }
  void expect_gradients_near(const Head& other, double share) const {
    expect_near(to_host<double>(of_x.grad), to_host<double>(other.of_x.grad), share,
                "dx: the rows of a chunk are its gradient of the logits times the weight");
    expect_near(to_host<double>(of_weight.grad), to_host<double>(other.of_weight.grad), share,
                "dweight: the sum over all chunks of (gradient of the logits, transposed) times x");
  }
};

// How far sums in a different order may differ in a dtype.
double tolerance(DType t) { return t == DType::F64 ? 1e-14 : t == DType::F32 ? 1e-6 : 0.02; }

struct L16_LinearCrossEntropy : TapeTest {};

TEST_F(L16_LinearCrossEntropy, IsCrossEntropyOfLinearForAnyNumberOfRows) {
  RecordProperty("exercise", "16.2");
  for (const char* device : {"cpu", "emu"})
    for (const DType t : {DType::F32, DType::BF16, DType::F64}) {
      if (t == DType::F64 && device == std::string("emu")) continue;
      const Context own(device, 5);
      Head two(t);
      const double expected = two.step(0);
      for (const int64_t rows : {1, 2, 6, 7, 8, 1000}) {
        SCOPED_TRACE(std::string(device) + " " + name_of(t) + ", rows " + std::to_string(rows));
        Head head(t);
        EXPECT_NEAR(head.step(rows), expected, tolerance(t) * expected);
        head.expect_gradients_near(two, tolerance(t));
      }
    }
}

TEST_F(L16_LinearCrossEntropy, TheMeanIsOverTheTargetsThatCountOrOverAGivenCount) {
  Context own("cpu", 5);
  const auto number = [&](double x) {
    return from_host(own.device, Values{x}, {1}, DType::F64, Kind::Data, "count");
  };
  Head head(DType::F64), none(DType::F64, Ids(7, -1));
  const double mean = head.step(2);
  EXPECT_NEAR(head.step(2, number(5)), mean, 1e-14);
  EXPECT_NEAR(head.step(2, number(50)), mean / 10, 1e-14);
  EXPECT_TRUE(std::isnan(none.step(2))) << "without targets the loss must be NaN, as in cross_entropy";
}

TEST_F(L16_LinearCrossEntropy, GradientsAddUpWhereverTheyWereKept) {
  Context own("cpu", 5);
  Head two(DType::F64), head(DType::F64);
  for (int step = 0; step < 3; ++step) two.step(0);
  for (int step = 0; step < 3; ++step) head.step(3);
  expect_near(head.gradients(), two.gradients(), 1e-14);
  head.zero();
  two.zero();
  {  // two on one tape: the second uses the memory of the parameter's gradient
    Tape tape;
    tape.backward(add(head.loss(3), scale(head.loss(2), 3)));
  }
  {
    Tape tape;
    tape.backward(add(two.loss(0), scale(two.loss(0), 3)));
  }
  expect_near(head.gradients(), two.gradients(), 1e-14);
  head.zero();
  {  // a tape without backward() writes no gradient
    Tape tape;
    head.loss(3);
  }
  two.zero();
  head.step(3), two.step(0);
  expect_near(head.gradients(), two.gradients(), 1e-14);
  {  // zero_grad() between forward and backward
    Tape tape;
    const Tensor loss = head.loss(3);
    head.zero();
    tape.backward(loss);
  }
  expect_near(head.gradients(), two.gradients(), 1e-14);
}

TEST_F(L16_LinearCrossEntropy, TheWeightsGradientIsMadeWhereItWas) {
  Context own("cpu", 5);
  Head head(DType::F32);
  head.step(3);
  const void* const place = head.of_weight.grad.in().p;
  for (const bool zero_first : {true, false}) {
    if (zero_first) head.zero();
    own.device.meter().reset_peak();
    const int64_t before = own.device.meter().now()[Kind::Gradient];
    head.step(3);
    const int64_t more = own.device.meter().at_peak()[Kind::Gradient] - before;
    EXPECT_EQ(more, zero_first ? 0 : V * C * 4);
    EXPECT_EQ(head.of_weight.grad.in().p, place);
  }
}

TEST_F(L16_LinearCrossEntropy, OnlyTheGradientsThatAreWantedAreMade) {
  for (const bool x_trains : {false, true})
    for (const bool weight_trains : {false, true}) {
      Context own("meta", 5);
      Head head(DType::F32);
      if (!x_trains) head.x = head.x.detach();
      if (!weight_trains) head.weight = head.weight.detach();
      own.device.meter().reset_totals();
      Tape tape;
      const Tensor loss = head.loss(7);
      const int64_t products = 1 + x_trains + weight_trains;
      EXPECT_EQ(own.device.meter().totals(OpClass::Contraction).flops, products * 2 * N * C * V);
      EXPECT_EQ(tape.nodes().size(), x_trains || weight_trains ? 1u : 0u);
      EXPECT_EQ(tape.saved_bytes(), x_trains ? N * C * 4 + 4 : weight_trains ? 4 : 0);
    }
}

TEST_F(L16_LinearCrossEntropy, WhatCannotBeIsRefused) {
  Context own("cpu", 5);
  const Head head(DType::F32);
  const auto of = [&](const Shape& shape) { return normals(shape, DType::F32, 3); };
  const auto call = [&](const Tensor& x, const Tensor& w, const Tensor& targets, int64_t rows,
                        const Tensor& count = {}) {
    return [=] { linear_cross_entropy(x, w, targets, count, rows); };
  };
  const Tensor &x = head.x, &w = head.weight, &t = head.targets;
  expect_refused("linear_cross_entropy: x is [7,4], weight is [11,5]", call(of({7, 4}), w, t, 2));
  expect_refused("linear_cross_entropy: x is [6,5]", call(of({6, 5}), w, t, 2));
  expect_refused("targets are [7] fp32", call(x, w, of({7}), 2));
  expect_refused("at least one row", call(of({0, 5}), w, ids_of({}, {0}), 2));
  expect_refused("0 rows at a time", call(x, w, t, 0));
  expect_refused("count is [2]", call(x, w, t, 2, of({2})));
  expect_refused("target 11", call(x, w, ids_of({0, 1, 2, 3, 4, 5, 11}, {7}), 2));
}

}  // namespace
}  // namespace gradus
