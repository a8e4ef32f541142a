// Gradients of every op against finite differences (fp64, every element, ragged sizes, random upstream
// gradients), each also with a 1 % wrong gradient, which must be rejected; and the tape's rules.
#include <gtest/gtest.h>

#include <cmath>

#include "src/autograd/gradcheck.h"
#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"
#include "tests/mistakes.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

std::vector<GradcheckInput> random_inputs(const std::vector<Shape>& shapes, uint64_t seed = 3) {
  std::vector<GradcheckInput> inputs;
  uint64_t stream = 0;
  for (const Shape& shape : shapes) {
    Rng rng(seed, stream++);
    GradcheckInput in{shape, {}};
    for (int64_t i = 0; i < shape.numel(); ++i) in.values.push_back(rng.normal());
    inputs.push_back(in);
  }
  return inputs;
}

// The check passes, and fails for each input in turn when that input's gradient is 1 % too large.
void expect_gradients(const char* op, const GradcheckFunction& f, const std::vector<Shape>& shapes) {
  Context context("cpu", 5);
  const std::vector<GradcheckInput> inputs = random_inputs(shapes);
  const GradcheckResult right = gradcheck(f, inputs);
  EXPECT_TRUE(right.passed()) << op << ": " << right.where << "; the formula is at the top of src/ops/" << op
                              << ".cpp";
  ::testing::Test::RecordProperty(std::string(op) + " error / allowed error, %",
                                  std::to_string(100 * right.worst));
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_FALSE(gradcheck(f, inputs, 1, 1.01, int(i)).passed())
        << op << ": a 1 % wrong gradient of input " << i << " passed";
}

using In = const std::vector<Tensor>&;

TEST(L02_Gradcheck, AllowsAMillionthOfTheGradientAndOfItsRootMeanSquare) {
  Context context("cpu", 5);
  const auto f = [](In x) { return scale(x[0], 3); };
  const auto worst = [&](double mutant) { return gradcheck(f, {{{1}, {0.5}}}, 1, mutant).worst; };
  EXPECT_LT(worst(1), 0.1);
  EXPECT_NEAR(worst(1 + 1e-6), 0.5, 0.1);  // for one element both are the same
  EXPECT_NEAR(worst(1 - 4e-6), 2, 0.1);
  EXPECT_FALSE(gradcheck(f, {{{2}, {0.5, NAN}}}, 1, NAN).passed());
}
TEST(L02_Gradcheck, Add) {
  expect_gradients("add", [](In x) { return add(x[0], x[1]); }, {{7, 3}, {7, 3}});
}
TEST(L02_Gradcheck, AddToItself) {
  RecordProperty("exercise", "02.6");
  expect_gradients("add", [](In x) { return add(x[0], x[0]); }, {{7, 3}});
}
TEST(L02_Gradcheck, Scale) {
  expect_gradients("scale", [](In x) { return scale(x[0], -2.5); }, {{257}});
}
TEST(L02_Gradcheck, Tanh) {
  RecordProperty("exercise", "02.3");
  expect_gradients("tanh", [](In x) { return tanh(x[0]); }, {{255}});
}
TEST(L02_Gradcheck, Linear) {
  RecordProperty("exercise", "02.5");
  for (const int64_t rows : {1, 7, 33})
    expect_gradients("linear", [](In x) { return linear(x[0], x[1], x[2]); }, {{rows, 5}, {7, 5}, {7}});
  expect_gradients("linear", [](In x) { return linear(x[0], x[1]); }, {{2, 3, 5}, {1, 5}});
}
TEST(L02_Gradcheck, CrossEntropy) {
  expect_gradients("cross_entropy",
                   [](In x) {
                     return cross_entropy(x[0], ids_of({0, 6, 3, 3, 1}, {5}));
                   },
                   {{5, 7}});
}
TEST(L03_Gradcheck, Softmax) {
  RecordProperty("exercise", "03.4");
  expect_gradients("softmax", [](In x) { return softmax(x[0]); }, {{7, 5}});
  expect_gradients("softmax", [](In x) { return softmax(add(x[0], x[0])); }, {{1, 2}});
}
using L03_SoftmaxByHand = TapeTest;
TEST_F(L03_SoftmaxByHand, GradientOfTwoEqualOnes) {
  RecordProperty("exercise", "03.4");
  Tape tape;
  tape.backward(softmax(trains(tensor({0, 0}, {1, 2}))), tensor({1, 0}, {1, 2}));
  const std::vector<double> dx = to_host<double>(leaf.grad);
  EXPECT_EQ(dx, (std::vector<double>{0.25, -0.25})) << usual_mistake(
      {{dx == std::vector<double>{0.5, 0},
        "each value's own derivative is there; that all share one sum is missing"},
       {dx == std::vector<double>{0, -0.5}, "the sum over the row is of y alone, without dy"}});
}
using L02_Tape = TapeTest;
TEST_F(L02_Tape, BackwardRunsEachNodeInReverse) {
  RecordProperty("exercise", "02.2");
  Tensor x = trains(tensor({0.5, -1}, {2}));
  Tape tape;
  tape.backward(scale(scale(x, 3), 5), tensor({1, 2}, {2}));  // needs no later exercise
  EXPECT_EQ(to_host<double>(leaf.grad), (std::vector<double>{15, 30}))
      << "the gradient of 5 (3 x) for dy = {1, 2}";
}

TEST_F(L02_Tape, GradientsAddUpUntilZeroed) {
  Tensor x = trains(tensor({1, 2, 3}, {3}));
  for (int pass = 1; pass <= 3; ++pass) {
    Tape tape;
    tape.backward(scale(x, 2), tensor({1, 1, 1}, {3}));
    EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(3, 2.0 * pass));
  }
  leaf.zero();
  Tape tape;
  tape.backward(scale(x, 2), tensor({1, 1, 1}, {3}));
  EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(3, 2.0))
      << "after zero() the first gradient must replace the old one";
}

TEST_F(L02_Tape, SavesOnlyWhatAWantedGradientNeeds) {
  Tensor x = trains(tensor(std::vector<double>(6, 1), {2, 3})),
         w = tensor(std::vector<double>(12, 1), {4, 3});
  {
    Tape tape;
    const Tensor y =
        linear(scale(x, 2), w);  // w is frozen: its gradient is not wanted, so x need not be saved
    EXPECT_FALSE(tape.nodes()[1].saved[0].tensor.defined());
    EXPECT_TRUE(tape.nodes()[1].saved[1].tensor.defined());
    EXPECT_EQ(tape.saved_bytes(), 0) << "a weight is saved, but it is not an activation";
  }
  Leaf leaf_w;
  attach(w, leaf_w, "w");
  Tape tape;
  const Tensor y = linear(scale(x, 2), w);
  EXPECT_EQ(tape.saved_bytes(), 6 * 4);
  EXPECT_EQ(context.device.meter().now()[Kind::Activation], 6 * 4);
}

TEST_F(L02_Tape, MixingTapesIsAnError) {
  Tensor x = trains(tensor({1}, {1}));
  Tape outer;
  const Tensor h = scale(x, 2);
  Tape inner;
  const Tensor y = scale(h, 3);
  EXPECT_THROW(inner.backward(y), Error);
}

// The tape must sum the gradients of several uses, but must not add to old values in a buffer.
using L02_TapeSums = TapeTest;
TEST_F(L02_TapeSums, AWeightThatIsUsedTwiceGetsBothGradients) {
  RecordProperty("exercise", "02.5");
  const auto twice = [](const std::vector<Tensor>& x) { return linear(linear(x[0], x[1]), x[1]); };
  const std::vector<GradcheckInput> inputs = {{{2, 2}, {1, -2, 3, 0.5}}, {{2, 2}, {0.3, 1, -1, 2}}};
  const GradcheckResult result = gradcheck(twice, inputs);
  EXPECT_TRUE(result.passed()) << result.where << "; write to dx.out(1) as it is: it says whether to add";
  const Tensor w = trains(tensor({1}, {1, 1}));
  double dw[2];
  for (double& after_a_pass : dw) {
    Tape tape;
    tape.backward(linear(tensor({1, 3}, {2, 1}), w), tensor({1, 1}, {2, 1}));
    after_a_pass = to_host<double>(leaf.grad)[0];
  }
  EXPECT_EQ(dw[0], 1 + 3) << usual_mistake(
      {{dw[0] == 2, "the mean over the rows; gradients of rows are added"},
       {dw[0] == 1, "the last row is missing from the sum"}});
  EXPECT_EQ(dw[1], 4 + 4) << usual_mistake(
      {{dw[1] == 4, "the gradient of an earlier use is replaced, not added to"}});
}

TEST_F(L02_TapeSums, ANodeThatNothingDependsOnIsSkipped) {  // as when a value is computed only to be printed
  RecordProperty("exercise", "02.2");
  Tensor x = trains(tensor({0.5, -1}, {2}));
  Tape tape;
  const Tensor y = scale(x, 3), unused = scale(y, 7);
  const std::string refused = refusal([&] { tape.backward(y, tensor({1, 2}, {2})); });
  ASSERT_EQ(refused, "") << usual_mistake(
      {{refused.find("undefined") != std::string::npos,
        "a node runs although its output has no gradient: nothing that is asked for depends on it"}});
  EXPECT_EQ(to_host<double>(leaf.grad), (std::vector<double>{3, 6}))
      << "the gradient of 3 x; y does not depend on 7 (3 x)";
}

TEST_F(L02_TapeSums, APassedGradientIsAddedToWhatIsThere) {
  Tensor x = trains(tensor({1}, {1}));
  Tape tape;
  const Tensor h = scale(x, 1), twice = add(h, h), five = scale(h, 5);  // backward reaches `five` first
  tape.backward(add(twice, five));
  EXPECT_EQ(item(leaf.grad), 7);
}

TEST_F(L02_TapeSums, TheFirstContributionReplacesWhatLiesInTheBuffer) {
  Tensor x = trains(tensor(std::vector<double>(1000, 1), {1000}));
  Tape tape;
  const Tensor y = scale(scale(x, 2), 3), dy = tensor(std::vector<double>(1000, 1), {1000});
  {  // memory that the backward pass will reuse
    const std::vector<double> old(1000, NAN);
    const Tensor a = tensor(old, {1000}), b = tensor(old, {1000}), c = tensor(old, {1000});
  }
  tape.backward(y, dy);
  EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(1000, 6));
}

TEST_F(L02_TapeSums, AfterAStretchWithoutATapeRecordingGoesOn) {
  Tensor x = trains(tensor({1}, {1}));
  EXPECT_FALSE(tanh(x).slot.wanted()) << "without a tape nothing is recorded";
  Tape tape;
  {
    NoTape none;
    EXPECT_FALSE(tanh(x).slot.wanted());
  }
  EXPECT_TRUE(tanh(x).slot.wanted());
  { Evaluation evaluation; }
  EXPECT_TRUE(tanh(x).slot.wanted());
}

}  // namespace
}  // namespace gradus
