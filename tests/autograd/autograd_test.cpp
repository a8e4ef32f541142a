// Gradients of every op against finite differences (fp64, every element, ragged sizes, random upstream
// gradients), each also with a 1 % wrong gradient, which must be rejected; and the tape's rules.
#include <gtest/gtest.h>

#include <cmath>

#include "src/autograd/gradcheck.h"
#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"
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
  ::testing::Test::RecordProperty(std::string(op) + " % of budget used", std::to_string(100 * right.worst));
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
  EXPECT_NEAR(worst(1 + 1e-6), 0.5, 0.1);  // of one element both are the same
  EXPECT_NEAR(worst(1 - 4e-6), 2, 0.1);
  EXPECT_FALSE(gradcheck(f, {{{2}, {0.5, NAN}}}, 1, NAN).passed());
}
TEST(L02_Gradcheck, Add) {
  expect_gradients("add", [](In x) { return add(x[0], x[1]); }, {{7, 3}, {7, 3}});
}
TEST(L02_Gradcheck, AddToItself) {
  RecordProperty("exercise", "02.4");
  expect_gradients("add", [](In x) { return add(x[0], x[0]); }, {{7, 3}});
}
TEST(L02_Gradcheck, Scale) {
  expect_gradients("scale", [](In x) { return scale(x[0], -2.5); }, {{257}});
}
TEST(L02_Gradcheck, Tanh) {
  RecordProperty("exercise", "02.2");
  expect_gradients("tanh", [](In x) { return tanh(x[0]); }, {{255}});
}
TEST(L02_Gradcheck, Linear) {
  RecordProperty("exercise", "02.3");
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
TEST(L03_Gradcheck, Gelu) {
  expect_gradients("gelu", [](In x) { return gelu(x[0]); }, {{257}});
}
TEST(L04_Gradcheck, GeluErf) {
  expect_gradients("gelu_erf", [](In x) { return gelu_erf(x[0]); }, {{257}});
}
TEST(L04_Gradcheck, Rotary) {  // all of a head, a part of it, nothing
  for (const int64_t dims : {6, 4, 0})
    expect_gradients("rotary", [=](In x) { return rotary(x[0], 2, dims); }, {{2, 7, 3 * 12}});
}
TEST(L04_Gradcheck, SelectToken) {  // also where another gradient came first
  expect_gradients("select_token", [](In x) { return select_token(x[0], 0); }, {{3, 4, 5}});
  const auto twice = [](In x) { return add(select_token(x[0], 2), select_token(scale(x[0], 2), 2)); };
  expect_gradients("select_token", twice, {{3, 4, 5}});
}
TEST(L03_Gradcheck, Softmax) {
  RecordProperty("exercise", "03.6");
  expect_gradients("softmax", [](In x) { return softmax(x[0]); }, {{7, 5}});
  expect_gradients("softmax", [](In x) { return softmax(add(x[0], x[0])); }, {{1, 2}});
}
TEST(L03_Gradcheck, LayerNorm) {
  expect_gradients("layernorm", [](In x) { return layernorm(x[0], x[1], x[2]); }, {{7, 5}, {5}, {5}});
  expect_gradients("layernorm", [](In x) { return layernorm(x[0], x[1], x[2]); }, {{33, 3}, {3}, {3}});
}
TEST(L03_Gradcheck, Embedding) {  // id 2 occurs three times, id 1 never
  expect_gradients("embedding",
                   [](In x) {
                     return embedding(x[0], ids_of({2, 0, 2, 3, 2, 4}, {2, 3}));
                   },
                   {{5, 7}});
}
TEST(L03_Gradcheck, AddPositions) {  // fewer positions than the table has
  expect_gradients("add_positions", [](In x) { return add_positions(x[0], x[1]); }, {{2, 3, 5}, {4, 5}});
}
TEST(L03_Gradcheck, Attention) {
  for (const auto attention : {attention_plain, attention_flash}) {
    for (const Mask mask : {Mask::Causal, Mask::None})
      expect_gradients("attention", [=](In x) { return attention(x[0], 2, mask, 0); }, {{2, 7, 3 * 6}});
    expect_gradients("attention", [=](In x) { return attention(x[0], 1, Mask::Causal, 0); },
                     {{1, 67, 3 * 2}});
  }
}
TEST(L03_Gradcheck, Dropout) {  // the mask is a function of the seed, so differences see the same one
  const auto f = [](In x) {
    current().dropout_ordinal() = 0;
    return dropout(x[0], 0.3);
  };
  expect_gradients("dropout", f, {{3, 7, 5}});
}
TEST(L03_Gradcheck, AttentionDropout) {
  for (const auto attention : {attention_plain, attention_flash}) {
    const auto f = [=](In x) {
      current().dropout_ordinal() = 0;
      return attention(x[0], 2, Mask::Causal, 0.4);
    };
    expect_gradients("attention", f, {{2, 7, 3 * 6}});
  }
}

struct TapeTest : ::testing::Test {
  Context context{"cpu", 5};
  Tensor tensor(const std::vector<double>& values, const Shape& shape) {
    return from_host(context.device, values, shape, DType::F32, Kind::Weight, "x");
  }
};
using L02_Tape = TapeTest;

TEST_F(L02_Tape, BackwardRunsEachNodeInReverse) {
  RecordProperty("exercise", "02.1");
  Tensor x = tensor({0.5, -1}, {2});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  tape.backward(scale(scale(x, 3), 5), tensor({1, 2}, {2}));  // of later exercises, none is needed
  EXPECT_EQ(to_host<double>(leaf.grad), (std::vector<double>{15, 30})) << "of 5 (3 x), where dy is {1, 2}";
}

TEST_F(L02_Tape, GradientsAddUpUntilZeroed) {
  Tensor x = tensor({1, 2, 3}, {3});
  Leaf leaf;
  attach(x, leaf, "x");
  for (int pass = 1; pass <= 3; ++pass) {
    Tape tape;
    tape.backward(scale(x, 2), tensor({1, 1, 1}, {3}));
    EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(3, 2.0 * pass));
  }
  leaf.zero();
  Tape tape;
  tape.backward(scale(x, 2), tensor({1, 1, 1}, {3}));
  EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(3, 2.0))
      << "the first write after zero must replace";
}

TEST_F(L02_Tape, ASharedGradientIsNotWrittenThrough) {  // y = tanh(x) + x: add passes dy on to both
  Tensor x = tensor({0.3}, {1});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  const Tensor h = scale(x, 1), y = add(add(h, tanh(h)), scale(h, 5));
  tape.backward(y);
  EXPECT_NEAR(item(leaf.grad), 1 + (1 - std::tanh(0.3) * std::tanh(0.3)) + 5, 1e-6);
}

TEST_F(L02_Tape, ASecondBackwardIsAnErrorThatExplains) {
  Tensor x = tensor({1}, {1});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  const Tensor y = tanh(x);
  tape.backward(y);
  expect_refused("already consumed", [&] { tape.backward(y); });
}

TEST_F(L02_Tape, SavesOnlyWhatAWantedGradientNeeds) {
  Tensor x = tensor(std::vector<double>(6, 1), {2, 3}), w = tensor(std::vector<double>(12, 1), {4, 3});
  Leaf leaf;
  attach(x, leaf, "x");
  {
    Tape tape;
    const Tensor y =
        linear(scale(x, 2), w);  // w is frozen: its gradient is not wanted, so x need not be saved
    EXPECT_FALSE(tape.nodes()[1].saved[0].tensor.defined());
    EXPECT_TRUE(tape.nodes()[1].saved[1].tensor.defined());
    EXPECT_EQ(tape.saved_bytes(), 0) << "a weight is saved, but it is no activation";
  }
  Leaf leaf_w;
  attach(w, leaf_w, "w");
  Tape tape;
  const Tensor y = linear(scale(x, 2), w);
  EXPECT_EQ(tape.saved_bytes(), 6 * 4);
  EXPECT_EQ(context.device.meter().now()[Kind::Activation], 6 * 4);
}

TEST_F(L02_Tape, BackwardFreesAsItGoes) {
  Tensor x = tensor(std::vector<double>(1000, 0.1), {1000});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  Tensor y = tanh(tanh(x));
  EXPECT_EQ(tape.saved_bytes(), 8000);
  tape.backward(y, tensor(std::vector<double>(1000, 1), {1000}));
  y = {};
  EXPECT_EQ(context.device.meter().now()[Kind::Activation], 0);
  EXPECT_EQ(context.device.meter().now()[Kind::Gradient], 4000);
}

TEST_F(L02_Tape, AWrittenSavedTensorIsDetected) {
  Tensor x = tensor({1, 2}, {2});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  Tensor y = tanh(x);
  copy_from_host(y, {0, 0});
  EXPECT_THROW(tape.backward(y, tensor({1, 1}, {2})), Error);
}

TEST_F(L02_Tape, TheHookFiresOnceWhenTheGradientIsFinal) {
  Tensor x = tensor({1}, {1});
  Leaf leaf;
  attach(x, leaf, "x");
  int fired = 0;
  double seen = 0;
  leaf.on_final = [&](Leaf& l) { ++fired, seen = item(l.grad); };
  Tape tape;
  tape.backward(add(scale(x, 2), scale(x, 3)));
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(seen, 5);
}

TEST_F(L02_Tape, MixingTapesIsAnError) {
  Tensor x = tensor({1}, {1});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape outer;
  const Tensor h = scale(x, 2);
  Tape inner;
  const Tensor y = scale(h, 3);
  EXPECT_THROW(inner.backward(y), Error);
}

TEST_F(L02_Tape, NothingIsRecordedWithoutATape) {
  Tensor x = tensor({1}, {1});
  Leaf leaf;
  attach(x, leaf, "x");
  EXPECT_FALSE(tanh(x).slot.wanted());
  Tape tape;
  NoTape none;
  EXPECT_FALSE(tanh(x).slot.wanted());
}

TEST_F(L02_Tape, CheckNanNamesTheOp) {
  context.check_finite = true;
  expect_refused("scale: element 1", [&] { scale(tensor({1, INFINITY}, {2}), 2); });
}

TEST_F(L02_Tape, OpsRefuseWrongShapesInASentence) {
  const Tensor a = tensor(std::vector<double>(6, 0), {2, 3}), b = tensor(std::vector<double>(8, 0), {2, 4});
  for (const auto& f : std::vector<std::function<void()>>{
           [&] { add(a, b); }, [&] { linear(a, b); }, [&] { layernorm(a, b, b); },
           [&] { attention_plain(a, 2, Mask::None, 0); }, [&] { attention_flash(a, 2, Mask::None, 0); },
           [&] { embedding(a, b); }, [&] { cross_entropy(a, b); }, [&] { add_positions(a, b); },
           [&] { rotary(a, 2, 2); }, [&] { select_token(a, 0); }}) {
    expect_refused("[2,3]", [&] { f(); });
  }
}

}  // namespace
}  // namespace gradus
