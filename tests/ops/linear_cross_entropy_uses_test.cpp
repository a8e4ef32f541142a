// linear_cross_entropy, which computes its gradients in the forward pass, among other ops and tapes: in
// checkpointed segments, with a weight that other ops read, with a factor, and without a backward pass.
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "src/optim/optimizer.h"
#include "tests/devices.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

using Ids = std::vector<int32_t>;
using Values = std::vector<double>;
constexpr int64_t C = 5, V = 11, kRows = 3;
const Ids kTargets{0, 10, -1, 3, 3, -1, 7}, kIds{4, 0, 10, 4, 1, 7, 3};

Tensor normals(const Shape& shape, DType t, uint64_t stream) {
  Rng rng(16, stream);
  Values values(static_cast<size_t>(shape.numel()));
  for (double& v : values) v = rng.normal();
  return from_host(current().device, values, shape, t, Kind::Data, "x");
}

// x and a weight that train. With rows == 0, linear and cross_entropy compute the loss.
struct Head {
  Tensor x, weight;
  Leaf of_x, of_weight;
  explicit Head(DType t, int64_t N = int64_t(kTargets.size()))
      : x(normals({N, C}, t, 1)), weight(normals({V, C}, t, 2)) {
    attach(x, of_x, "x"), attach(weight, of_weight, "weight");
  }
  Tensor loss(const Tensor& from, int64_t rows, const Ids& targets = kTargets,
              const Tensor& count = {}) const {
    const Tensor t = ids_of(targets, {int64_t(targets.size())});
    return rows == 0 ? cross_entropy(linear(from, weight), t, count)
                     : linear_cross_entropy(from, weight, t, count, rows);
  }
  double backward(const std::function<Tensor()>& f) const {
    Tape tape;
    const Tensor y = f();
    tape.backward(y);
    return item(y);
  }
  void zero() { of_x.zero(), of_weight.zero(); }
  Values gradients() const {
    Values all;
    for (const Leaf* leaf : {&of_x, &of_weight})
      if (leaf->written)
        for (const double v : to_host<double>(leaf->grad)) all.push_back(v);
    return all;
  }
};

Values times(double factor, Values values) {
  for (double& v : values) v *= factor;
  return values;
}
void expect_near(const Values& got, const Values& expected, double share) {
  ASSERT_EQ(got.size(), expected.size());
  double most = 0;
  for (const double e : expected) most = std::max(most, std::abs(e));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], share * most) << i;
}

struct L16_LinearCrossEntropyUses : TapeTest {};

struct Segment {
  const char* name;
  std::function<Tensor(const Head&, const Tensor& from)> f;
};
const std::vector<Segment> kSegments{
    {"its last op", [](const Head& h, const Tensor& from) { return h.loss(gelu(from), kRows); }},
    {"a factor behind it",
     [](const Head& h, const Tensor& from) { return scale(h.loss(gelu(from), kRows), 0.5); }},
    {"a tied embedding before it",
     [](const Head& h, const Tensor& from) {
       return h.loss(add(gelu(from), embedding(h.weight, ids_of(kIds, {7}))), kRows);
     }},
    {"a weight that the segment makes",
     [](const Head& h, const Tensor& from) {
       return linear_cross_entropy(from, gelu(h.weight), ids_of(kTargets, {7}), {}, kRows);
     }},
    {"two of one weight",
     [](const Head& h, const Tensor& from) {
       return add(h.loss(gelu(from), kRows), scale(h.loss(gelu(gelu(from)), 2), 3));
     }},
};

TEST_F(L16_LinearCrossEntropyUses, ACheckpointedSegmentGivesTheSameGradientsToTheBit) {
  for (const char* device : {"cpu", "emu"})
    for (const DType t : {DType::F32, DType::BF16})
      for (const Segment& s : kSegments) {
        const Context own(device, 5);
        Values results[2];
        for (const bool again : {false, true}) {
          Head head(t);
          for (int step = 0; step < 2; ++step) {
            head.zero();
            for (int micro = 0; micro < 2; ++micro)
              head.backward([&] {
                const Tensor from = scale(head.x, micro + 1);
                const auto f = [&](const Tensor& x) { return s.f(head, x); };
                return scale(again ? checkpoint(from, f) : f(from), 0.25);
              });
          }
          results[again] = head.gradients();
        }
        EXPECT_EQ(results[0].size(), size_t((7 + V) * C));
        EXPECT_EQ(results[1], results[0]) << device << " " << name_of(t) << ", " << s.name;
      }
}

TEST_F(L16_LinearCrossEntropyUses, OtherOpsMayReadTheWeightBeforeAndBehindIt) {
  Values results[2];
  for (const int64_t rows : {int64_t(0), kRows}) {
    Head head(DType::F64);
    for (int micro = 0; micro < 2; ++micro)
      head.backward([&] {
        const Tensor from = add(head.x, embedding(head.weight, ids_of(kIds, {7})));
        const Tensor loss = head.loss(from, rows);
        return add(loss, cross_entropy(linear(from, head.weight), ids_of(kIds, {7})));
      });
    results[rows > 0] = head.gradients();
  }
  expect_near(results[1], results[0], 1e-14);
}

TEST_F(L16_LinearCrossEntropyUses, XMayBeTheWeight) {
  Values results[2];
  for (const int64_t rows : {int64_t(0), kRows}) {
    Head head(DType::F64);
    head.backward([&] { return head.loss(head.weight, rows, {0, 1, 2, 3, 4, 5, 6, 7, 8, -1, 0}); });
    results[rows > 0] = head.gradients();
  }
  expect_near(results[1], results[0], 1e-14);
}

TEST_F(L16_LinearCrossEntropyUses, AFrozenWeightOrAnXThatWantsNoneLeavesTheOthersGradientAsItIs) {
  for (const bool x_trains : {true, false})
    for (const int64_t rows : {kRows, int64_t(7)}) {
      Head head(DType::F32), all(DType::F32);
      all.backward([&] { return all.loss(all.x, rows); });
      (x_trains ? head.weight : head.x) = (x_trains ? head.weight : head.x).detach();
      head.backward([&] { return head.loss(head.x, rows); });
      EXPECT_EQ(head.gradients(), to_host<double>((x_trains ? all.of_x : all.of_weight).grad));
    }
}

TEST_F(L16_LinearCrossEntropyUses, AFactorBehindTheLossIsThatOfTheGradients) {
  Head head(DType::F32);
  head.backward([&] { return head.loss(head.x, kRows); });
  const Values whole = head.gradients();
  for (const double factor : {0.5, -4.0, 0.0}) {
    head.zero();
    head.backward([&] { return scale(head.loss(head.x, kRows), factor); });
    EXPECT_EQ(head.gradients(), times(factor, whole)) << factor;
  }
  head.zero();
  head.backward([&] { return scale(head.loss(head.x, kRows), 0.3); });
  expect_near(head.gradients(), times(0.3, whole), 1e-6);
}

TEST_F(L16_LinearCrossEntropyUses, ALossWithoutABackwardPassChangesNoGradient) {
  for (const bool zero_first : {false, true}) {
    Head head(DType::F32), expected(DType::F32);
    for (Head* h : {&head, &expected}) h->backward([&] { return scale(h->loss(h->x, kRows), 2); });
    if (zero_first) head.zero(), expected.zero();
    {  // the tape ends without a backward pass
      Tape tape;
      head.loss(head.x, kRows);
    }
    EXPECT_EQ(head.gradients(), expected.gradients()) << zero_first;
    for (Head* h : {&head, &expected})  // the tape runs backward, for a different loss
      h->backward([&] {
        if (h == &head) h->loss(h->x, kRows);
        return cross_entropy(linear(h->x, h->weight), ids_of(kTargets, {7}));
      });
    EXPECT_EQ(head.gradients(), expected.gradients()) << zero_first;
    EXPECT_EQ(head.of_weight.uses, 0);
  }
}

TEST_F(L16_LinearCrossEntropyUses, WithoutATapeNothingIsMadeForABackwardPass) {
  Head head(DType::F32);
  head.backward([&] { return head.loss(head.x, kRows); });
  head.zero();
  const Meter& meter = context.device.meter();
  const int64_t before = meter.now()[Kind::Gradient];
  context.device.meter().keep_trace();
  head.loss(head.x, kRows);
  int64_t products = 0;
  for (const auto& [cost, count] : meter.trace())
    if (cost.op_class == OpClass::Contraction) products += count;
  EXPECT_EQ(products, 3) << "the products are not those of 3, 3 and 1 rows of logits";
  EXPECT_EQ(meter.now()[Kind::Gradient], before);
}

TEST_F(L16_LinearCrossEntropyUses, RowsWithoutATargetMayBeAllOfAChunk) {
  for (const Ids& targets :
       {Ids{-1, -1, -1, 0, 10, 3, 7}, {0, -1, 2, -1, -1, -1, 7}, {0, 1, 2, 3, 4, 5, -1}}) {
    Values results[2];
    double losses[2];
    for (const int64_t rows : {int64_t(0), kRows}) {
      Head head(DType::F64);
      losses[rows > 0] = head.backward([&] { return head.loss(head.x, rows, targets); });
      results[rows > 0] = head.gradients();
    }
    EXPECT_NEAR(losses[1], losses[0], 1e-14);
    expect_near(results[1], results[0], 1e-14);
  }
}

TEST_F(L16_LinearCrossEntropyUses, WithoutAnyTargetTheGradientsAreZero) {
  const Tensor count = from_host(context.device, Values{4}, {1}, DType::F32, Kind::Data, "count");
  for (const bool counted : {false, true}) {
    Head head(DType::F32);
    const double loss =
        head.backward([&] { return head.loss(head.x, kRows, Ids(7, -1), counted ? count : Tensor()); });
    EXPECT_EQ(head.gradients(), Values(size_t((7 + V) * C), 0.0)) << counted;
    EXPECT_TRUE(counted ? loss == 0 : std::isnan(loss)) << loss;
  }
}

struct L16_LinearCrossEntropyScaled : ::testing::TestWithParam<const char*> {};
ON_DEVICES_WITH_DATA(L16_LinearCrossEntropyScaled);

TEST_P(L16_LinearCrossEntropyScaled, TheGradientsHaveTheLossScaleOfTheBackwardPass) {
  Context own(GetParam(), 5);
  Head head(DType::F32);
  head.backward([&] { return head.loss(head.x, kRows); });
  const Values unscaled = head.gradients();
  for (const float forward : {1024.0f, 1.0f})
    for (const float backward : {1024.0f, 256.0f}) {
      head.zero();
      start_loss_scaling(own.device, forward);
      Tape tape;
      const Tensor loss = head.loss(head.x, kRows);
      start_loss_scaling(own.device, backward);
      tape.backward(loss);
      EXPECT_EQ(head.gradients(), times(backward, unscaled)) << forward << " " << backward;
    }
}

// A mean over so many targets that gradients are below the smallest fp16 number, unless they are scaled.
TEST_P(L16_LinearCrossEntropyScaled, Fp16DoesNotLoseSmallGradients) {
  Context own(GetParam(), 5);
  const Tensor count = from_host(own.device, Values{1 << 24}, {1}, DType::F32, Kind::Data, "count");
  Values expected;
  {
    Head head(DType::F32);
    head.backward([&] { return head.loss(head.x, kRows, kTargets, count); });
    expected = times(double(1 << 24), head.gradients());
  }
  start_loss_scaling(own.device, 1 << 20);
  for (const int micro_batches : {1, 2}) {
    Head head(DType::F16);
    for (int micro = 0; micro < micro_batches; ++micro)
      head.backward([&] { return head.loss(head.x, kRows, kTargets, count); });
    expect_near(times(16.0 / micro_batches, head.gradients()), expected, 0.01);
  }
}

struct L16_EarlyGradient : TapeTest {};

// The forward pass computes the gradient when the program may still read the previous one.
TEST_F(L16_EarlyGradient, AGradientThatTheProgramHoldsIsNotWrittenOverByAForwardPass) {
  Head head(DType::F32);
  head.backward([&] { return head.loss(head.x, kRows); });
  const Tensor held = head.of_weight.grad;
  const Values before = to_host<double>(held);
  head.zero();
  Tape tape;
  const Tensor loss = scale(head.loss(gelu(head.x), kRows), 3);
  EXPECT_EQ(to_host<double>(held), before);
}

// add() passes dy on to x without a copy; x's gradient must not share the memory of dy.
TEST_F(L16_EarlyGradient, TheGradientThatBackwardBeginsWithStaysItsOwners) {
  Tensor x = trains(tensor({1, 2}, {1, 2})), other = tensor({1, 1}, {1, 2});
  Leaf of_other;
  attach(other, of_other, "other");
  {
    Tape tape;
    tape.backward(scale(other, 1), tensor({3, 5}, {1, 2}));
  }
  Tape tape;
  tape.backward(add(x, scale(x, 2)), of_other.grad);
  EXPECT_EQ(to_host<double>(leaf.grad), (Values{9, 15}));
  EXPECT_EQ(to_host<double>(of_other.grad), (Values{3, 5}));
}

}  // namespace
}  // namespace gradus
