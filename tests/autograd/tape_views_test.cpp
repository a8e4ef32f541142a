// Views on the tape: a gradient arrives in the shape of its tensor, whatever views were made of it; a part
// has none; and no other op reads the memory that backward overwrites.
#include <gtest/gtest.h>

#include <cmath>

#include "src/autograd/tape.h"
#include "src/ops/ops.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

struct L02_Views : TapeTest {
  Tensor filled(double value, const Shape& shape) {
    return tensor(std::vector<double>(shape.numel(), value), shape);
  }
};

TEST_F(L02_Views, AReshapedOutputsGradientIsThatOfTheOutput) {  // dW = dy^T x, each of 4 rows 0.1
  Tensor x = filled(0.1, {4, 3}), w = filled(0, {6, 3});
  attach(w, leaf, "w");
  Tape tape;
  const Tensor y = tanh(linear(x, w).reshape({8, 3}));
  tape.backward(y, filled(1, {8, 3}));
  for (const double g : to_host<double>(leaf.grad)) EXPECT_NEAR(g, 0.4, 1e-6);
}

TEST_F(L02_Views, AGradientOfAnotherShapeIsReadInTheOutputsShape) {
  Tensor x = filled(0.1, {4, 3}), w = filled(0, {6, 3});
  attach(w, leaf, "w");
  for (const Shape& shape : {Shape{8, 3}, Shape{24}, Shape{2, 12}}) {
    leaf.zero();
    Tape tape;
    tape.backward(linear(x, w), filled(1, shape));
    for (const double g : to_host<double>(leaf.grad)) EXPECT_NEAR(g, 0.4, 1e-6) << shape;
  }
  Tape tape;
  EXPECT_NE(refusal([&] {
              tape.backward(linear(x, w), filled(1, {4, 5}));
            }).find("[4,6]"),
            std::string::npos);
}

TEST_F(L02_Views, AParameterThatIsUsedReshapedKeepsItsShapeInTheGradient) {
  Tensor w = trains(filled(1, {2, 6}));
  for (int pass = 1; pass <= 2; ++pass) {  // the first pass allocates the buffer, the second adds to it
    Tape tape;
    const Tensor y = add(scale(w.reshape({3, 4}), 2), scale(w.reshape({12}), 3).reshape({3, 4}));
    tape.backward(y, filled(1, {3, 4}));
    EXPECT_EQ(leaf.grad.shape(), (Shape{2, 6}));
    EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(12, 5.0 * pass));
  }
}

TEST_F(L02_Views, TwoViewsOfOneOutputAddUp) {
  Tensor x = trains(filled(1, {6}));
  Tape tape;
  const Tensor h = scale(x, 2);
  tape.backward(add(scale(h.reshape({2, 3}), 3).reshape({6}), scale(h.reshape({3, 2}), 5).reshape({6})),
                filled(1, {6}));
  EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(6, 16));
}

TEST_F(L02_Views, AFreedGradientIsSetNotAddedTo) {
  Tensor x = trains(filled(1, {1000}));
  for (int pass = 0; pass < 3; ++pass) {
    leaf.grad = {};
    { const Tensor old = filled(7, {1000}); }  // the old contents of the next buffer
    Tape tape;
    tape.backward(scale(x, 2), filled(1, {1000}));
    EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(1000, 2)) << "pass " << pass;
    EXPECT_FALSE(!leaf.written);
  }
}

TEST_F(L02_Views, APartOfWhatWantsAGradientIsRefusedWhileATapeRecords) {
  Tensor x = trains(tensor({1, 2, 3, 4, 5, 6}, {3, 2}));
  EXPECT_FALSE(x.narrow(1, 2).slot.wanted()) << "no tape records";
  Tape tape;
  const std::string error = refusal([&] { x.narrow(1, 2); });
  EXPECT_NE(error.find("rows [1, 3) of [3,2]"), std::string::npos) << error;
  EXPECT_NE(error.find("detach"), std::string::npos) << error;
  for (const auto& [begin, count] :
       {std::pair(0, 3), {0, 0}, {3, 0}, {0, 1}, {2, 1}})  // also all rows and no rows
    EXPECT_NE(
        refusal([&, begin = begin, count = count] { x.narrow(begin, count); }).find("would get no gradient"),
        std::string::npos);
  const Tensor part = x.detach().narrow(1, 2);
  EXPECT_EQ(to_host<double>(part), (std::vector<double>{3, 4, 5, 6}));
  EXPECT_FALSE(part.slot.wanted());
  EXPECT_TRUE(x.slot.wanted()) << "detach() must change only the copy";
  EXPECT_TRUE(x.reshape({6}).slot.wanted());
  const Tensor activation = scale(x, 2);
  expect_refused("rows [1, 3) of [3,2]", [&] { activation.narrow(1, 2); });
  const NoTape none;
  EXPECT_FALSE(x.narrow(0, 1).slot.wanted());
}

TEST_F(L02_Views, PartsOfPartsBeginWhereTheyShould) {
  const Tensor x = tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {5, 2});
  const Tensor part = x.narrow(1, 4), inner = part.narrow(2, 2), last = inner.reshape({4, 1}).narrow(3, 1);
  EXPECT_EQ(to_host<double>(inner), (std::vector<double>{6, 7, 8, 9}));
  EXPECT_EQ(to_host<double>(last), (std::vector<double>{9}));
  EXPECT_EQ(part.narrow(4, 0).numel(), 0);
  EXPECT_EQ(inner.shape(), (Shape{2, 2}));
  EXPECT_EQ(inner.bytes(), 16);
  for (const auto& [begin, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {2, 1}, {-1, 1}, {1, -1}})
    EXPECT_NE(refusal([&, begin = begin, count = count] {
                inner.narrow(begin, count);
              }).find("do not exist in [2,2]"),
              std::string::npos)
        << begin << ", " << count;
  Tensor written = inner.narrow(1, 1);
  copy_from_host(written, {80, 90});
  EXPECT_EQ(to_host<double>(x), (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 80, 90}));
}

TEST_F(L02_Views, AParameterAsLogitsKeepsItsValue) {
  const std::vector<double> values{0, 1, 2, 3, 4, 6};
  Tensor w = trains(tensor(values, {2, 3}));
  const Tensor targets = ids_of({2, 0}, {2});
  for (int pass = 1; pass <= 2; ++pass) {
    Tape tape;
    tape.backward(cross_entropy(w, targets));
    EXPECT_EQ(to_host<double>(w), values);
    double sum = 0;
    for (int j = 0; j < 3; ++j) sum += std::exp(j);
    EXPECT_NEAR(to_host<double>(leaf.grad)[0], pass / sum / 2, 1e-6) << "softmax / rows, in each pass";
  }
}

TEST_F(L02_Views, LogitsThatAnotherOpSavedOrAVariableHoldsKeepTheirValues) {
  const std::vector<double> values{0.3, -1, 2, 0.5, 0.25, -2};
  Tensor x = trains(tensor(values, {2, 3}));
  const Tensor targets = ids_of({2, 0}, {2});
  Tensor w = filled(0.5, {3, 3});
  Leaf leaf_w;
  attach(w, leaf_w, "w");
  Tape tape;
  const Tensor logits = scale(x, 1), other = linear(logits, w);  // saves them for dw; reads them before and
  const Tensor again = linear(logits, w);                        // after cross_entropy's backward
  const Tensor sum = add(cross_entropy(again, targets), cross_entropy(logits, targets));
  tape.backward(add(sum, cross_entropy(other, targets)));
  const std::vector<double> after = to_host<double>(logits), expected = to_host<double>(x);
  EXPECT_EQ(after, expected);
  EXPECT_EQ(leaf_w.grad.shape(), w.shape());
}

TEST_F(L02_Views, LogitsThatNobodyHoldsBecomeTheirGradientInPlace) {
  Tensor x = trains(filled(0.5, {64, 1024}));
  const Tensor targets = ids_of(std::vector<int32_t>(64, 1), {64});
  leaf.grad = Tensor(context.device, x.shape(), DType::F32, Kind::Gradient, "x.grad");
  Tape tape;
  const Tensor loss = cross_entropy(scale(x, 2), targets);
  const int64_t before = context.device.meter().now().allocated();
  context.device.meter().reset_peak();
  tape.backward(loss);
  EXPECT_LT(context.device.meter().at_peak().allocated(), before + x.bytes() / 2);
}

TEST_F(L02_Views, LogitsThatBecameTheirGradientAreNoActivationAnyMore) {
  Tensor x = trains(filled(0.5, {8, 16}));
  const Tensor targets = ids_of(std::vector<int32_t>(8, 1), {8});
  const Meter& meter = context.device.meter();
  int64_t activations = -1;
  Tape tape;
  Tensor logits = scale(x, 2);
  logits = record("probe", {logits}, {}, logits.detach(), [&](const Node&, const Tensor& dy, Grads& dx) {
    activations = meter.now()[Kind::Activation];  // at the time of the next node
    dx.pass(0, dy);
  });
  const Tensor loss = cross_entropy(logits, targets);
  logits = {};
  EXPECT_EQ(meter.now()[Kind::Activation], 8 * 16 * 4 + 8 * 4) << "the logits, and a log-sum-exp per row";
  tape.backward(loss);
  EXPECT_EQ(activations, 0);
}

using L04_Views = L02_Views;
TEST_F(L04_Views, LogitsThatBecameTheirGradientMayBeTakenApart) {  // as select_token's backward does
  Tensor x = trains(filled(0.5, {2, 4, 3}));
  const Tensor targets = ids_of({2, 0}, {2});
  Tape tape;
  const Tensor loss = cross_entropy(select_token(x, 0), targets);
  tape.backward(loss);
  const std::vector<double> dx = to_host<double>(leaf.grad);
  EXPECT_NEAR(dx[0], 1.0 / 6, 1e-6);
  EXPECT_NEAR(dx[2], 1.0 / 6 - 0.5, 1e-6);
  EXPECT_EQ(dx[3], 0);
}

TEST_F(L02_Views, ASavedPartKeepsAllOfItsStorage) {
  Tensor w = trains(filled(1, {3, 3})), x = filled(1, {4, 3});
  Tape tape;
  linear(scale(x, 2).narrow(1, 2), w);
  EXPECT_EQ(tape.saved_bytes(), x.bytes());
  EXPECT_EQ(context.device.meter().now()[Kind::Activation], x.bytes());
}

TEST_F(L02_Views, AnAddIntoASavedTensorIsDetected) {
  Tensor x = trains(tensor({1, 2}, {2}));
  Tape tape;
  Tensor y = tanh(x), part = y.detach().narrow(1, 1);  // the part shares the storage
  const Tensor one = filled(1, {1});
  Ctx ctx = context.device.ctx();
  context.device.backend().add(ctx, 1, one.in(), one.in(), part.add());
  EXPECT_NE(refusal([&] { tape.backward(y, filled(1, {2})); }).find("was written to"), std::string::npos);
}

}  // namespace
}  // namespace gradus
