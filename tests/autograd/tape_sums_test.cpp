// What the tape adds up, and what it must not: gradients from several uses, buffers with old numbers in them,
// tensors that are saved twice.
#include <gtest/gtest.h>

#include <cmath>

#include "src/autograd/gradcheck.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

struct L02_TapeSums : TapeTest {};

TEST_F(L02_TapeSums, AWeightThatIsUsedTwiceGetsBothGradients) {
  RecordProperty("exercise", "02.3");
  const auto twice = [](const std::vector<Tensor>& x) { return linear(linear(x[0], x[1]), x[1]); };
  const std::vector<GradcheckInput> inputs = {{{2, 2}, {1, -2, 3, 0.5}}, {{2, 2}, {0.3, 1, -1, 2}}};
  const GradcheckResult result = gradcheck(twice, inputs);
  EXPECT_TRUE(result.passed()) << result.where << "; write to dx.out(1) as it is: it says whether to add";
}

TEST_F(L02_TapeSums, ANodeThatNothingDependsOnIsSkipped) {  // as when a value is computed only to be printed
  RecordProperty("exercise", "02.1");
  Tensor x = tensor({0.5, -1}, {2});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  const Tensor y = scale(x, 3), unused = scale(y, 7);
  tape.backward(y, tensor({1, 2}, {2}));
  EXPECT_EQ(to_host<double>(leaf.grad), (std::vector<double>{3, 6})) << "of 3 x; 7 (3 x) leads to nothing";
}

TEST_F(L02_TapeSums, APassedGradientIsAddedToWhatIsThere) {
  Tensor x = tensor({1}, {1});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  const Tensor h = scale(x, 1), twice = add(h, h), five = scale(h, 5);  // backward comes to `five` first
  tape.backward(add(twice, five));
  EXPECT_EQ(item(leaf.grad), 7);
}

TEST_F(L02_TapeSums, TheFirstContributionReplacesWhatLiesInTheBuffer) {
  Tensor x = tensor(std::vector<double>(1000, 1), {1000});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  const Tensor y = scale(scale(x, 2), 3), dy = tensor(std::vector<double>(1000, 1), {1000});
  {  // memory that the backward pass will be given
    const std::vector<double> old(1000, NAN);
    const Tensor a = tensor(old, {1000}), b = tensor(old, {1000}), c = tensor(old, {1000});
  }
  tape.backward(y, dy);
  EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(1000, 6));
}

TEST_F(L02_TapeSums, ATensorThatTwoNodesSaveCountsOnce) {
  const Tensor x = tensor(std::vector<double>(6, 1), {2, 3});
  Tensor w = tensor(std::vector<double>(12, 1), {4, 3});
  Leaf leaf;
  attach(w, leaf, "w");
  Tape tape;
  const Tensor h = scale(x, 2), y = add(linear(h, w), linear(h, w));
  EXPECT_EQ(tape.saved_bytes(), 6 * 4);
}

TEST_F(L02_TapeSums, AfterAStretchWithoutATapeRecordingGoesOn) {
  Tensor x = tensor({1}, {1});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  { NoTape none; }
  EXPECT_TRUE(tanh(x).slot.wanted());
  { Evaluation evaluation; }
  EXPECT_TRUE(tanh(x).slot.wanted());
}

}  // namespace
}  // namespace gradus
