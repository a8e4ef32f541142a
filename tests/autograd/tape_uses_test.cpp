// A parameter's leaf over backward passes: the number of its uses, the moment when its gradient is final, the
// dtype of the gradient; the state after a rejected call; shared and freed memory.
#include <gtest/gtest.h>

#include <cmath>

#include "src/autograd/tape.h"
#include "src/ops/ops.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

struct L02_TapeUses : TapeTest {
  const Meter& meter = context.device.meter();
  Tensor x = tensor({1}, {1}), w = tensor({2}, {1});
  Leaf leaf_x, leaf_w;
  void SetUp() override { attach(x, leaf_x, "x"), attach(w, leaf_w, "w"); }
};

TEST_F(L02_TapeUses, OnABranchThatDoesNotLeadToYTheyEndWithThePass) {
  int final_x = 0, final_w = 0;
  leaf_x.on_final = [&](Leaf&) { ++final_x; };
  {
    Tape tape;
    const Tensor before = scale(w, 7), y = scale(x, 3), after = add(w, y);
    EXPECT_EQ(leaf_w.uses, 2);
    EXPECT_EQ(leaf_x.uses, 1);
    tape.backward(y);
    EXPECT_EQ(leaf_w.uses, 0);
    EXPECT_EQ(leaf_x.uses, 0);
    EXPECT_TRUE(!leaf_w.written);
    EXPECT_EQ(final_x, 1);
  }
  EXPECT_EQ(leaf_w.uses, 0) << "the end of the tape must not subtract the uses a second time";
  leaf_w.on_final = [&](Leaf&) { ++final_w; };
  Tape tape;
  tape.backward(scale(w, 5));
  EXPECT_EQ(final_w, 1);
  EXPECT_EQ(item(leaf_w.grad), 5);
}

// on_final is called for each leaf, even if nothing is written to its gradient.
TEST_F(L02_TapeUses, ThePassIsFinalForALeafThatGetsNothingToo) {
  int final_w = 0;
  leaf_w.on_final = [&](Leaf& l) { final_w += !l.written; };
  for (int pass = 1; pass <= 2; ++pass) {
    leaf_x.zero();
    Tape tape;
    const Tensor unused = add(scale(w, 7), w);
    tape.backward(scale(x, 3));
    EXPECT_EQ(final_w, pass);
  }
}

TEST_F(L02_TapeUses, OfBothInputsOfANodeAndOfTwoTapes) {
  int fired = 0;
  double seen = 0;
  leaf_x.on_final = [&](Leaf& l) { ++fired, seen = item(l.grad); };
  Tape first;
  const Tensor y = add(x, x);
  EXPECT_EQ(leaf_x.uses, 2);
  Tape second;
  const Tensor z = scale(x, 5);
  EXPECT_EQ(leaf_x.uses, 3);
  first.backward(y);
  EXPECT_EQ(fired, 0) << "the second tape will contribute, too";
  second.backward(z);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(leaf_x.uses, 0);
}

TEST_F(L02_TapeUses, AGradientIsFinalAsSoonAsNothingElseAddsToIt) {
  std::vector<std::string> order;
  leaf_w.on_final = [&](Leaf& l) {
    order.push_back(l.name);
    EXPECT_EQ(item(l.grad), 3);
    EXPECT_TRUE(!leaf_x.written) << "the node of x comes later";
  };
  leaf_x.on_final = [&](Leaf& l) { order.push_back(l.name); };
  for (int pass = 1; pass <= 2; ++pass) {
    leaf_x.zero(), leaf_w.zero();
    Tape tape;
    tape.backward(scale(add(scale(x, 2), w), 3));
    EXPECT_EQ(order, (std::vector<std::string>{"w", "x"})) << "pass " << pass;
    EXPECT_EQ(item(leaf_x.grad), 6);
    order.clear();
  }
}

TEST_F(L02_TapeUses, WhatIsFrozenHasNone) {
  bool fired = false;
  leaf_w.on_final = [&](Leaf&) { fired = true; };
  w.slot = {};
  Tape tape;
  const Tensor y = add(x, w), z = add(x, w.detach());
  EXPECT_EQ(leaf_w.uses, 0);
  tape.backward(add(y, z));
  EXPECT_FALSE(fired);
  EXPECT_FALSE(leaf_w.grad.defined());
  EXPECT_EQ(item(leaf_x.grad), 2);
}

TEST_F(L02_TapeUses, ARefusedBackwardChangesNothing) {
  Tensor two = trains(tensor({1, 2}, {2}));
  Tape tape;
  const Tensor y = scale(two, 3);
  expect_refused("backward: y is [2], not a scalar; pass its gradient dy", [&] { tape.backward(y); });
  for (const int64_t n : {0, 1, 3, 4})
    expect_refused("backward: y is [2], its gradient is [" + std::to_string(n) + "]",
                   [&] { tape.backward(y, tensor(std::vector<double>(size_t(n), 1), {n})); });
  for (const Tensor& unrelated : {two.detach(), scale(two.detach(), 2)})
    expect_refused("does not depend on any trainable parameter", [&] { tape.backward(unrelated); });
  EXPECT_EQ(tape.nodes().size(), 1u);
  EXPECT_EQ(leaf.uses, 1);
  EXPECT_TRUE(!leaf.written);
  tape.backward(y, tensor({1, 10}, {2}));
  EXPECT_EQ(to_host<double>(leaf.grad), (std::vector<double>{3, 30}));
  Tape none;
  expect_refused("does not depend", [&] { none.backward(x); });
}

TEST_F(L02_TapeUses, AConsumedTapeRecordsNoMoreAndSaysSo) {
  Tape tape;
  const Tensor y = scale(x, 2);
  tape.backward(y);
  expect_refused("already consumed", [&] { tape.backward(y); });
  expect_refused("tanh: this tape was consumed by backward()", [&] { tanh(x); });
  EXPECT_EQ(leaf_x.uses, 0);
  EXPECT_EQ(tanh(x.detach()).slot.id, 0) << "an op whose inputs want no gradient is not recorded";
  Tape next;
  next.backward(scale(x, 5));
  EXPECT_EQ(item(leaf_x.grad), 7);
}

TEST_F(L02_TapeUses, TheDefaultGradientIsOneOfTheTypeAndShapeOfY) {
  for (const DType t : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    Tensor p = tensor({3}, {1, 1}, t);
    Leaf leaf;
    attach(p, leaf, "p");
    Tape tape;
    tape.backward(scale(p, -2));
    EXPECT_EQ(item(leaf.grad), -2) << name_of(t);
    EXPECT_EQ(leaf.grad.shape(), (Shape{1, 1}));
    EXPECT_EQ(leaf.grad.dtype(), t) << "the default is the parameter's dtype";
  }
}

TEST_F(L02_TapeUses, AGradientIsOfItsLeafsTypeAndItsBufferIsKept) {
  for (const DType t : {DType::BF16, DType::F32}) {
    Tensor p = tensor({3}, {1}, DType::BF16);
    Leaf leaf;
    leaf.dtype = t;
    EXPECT_TRUE(!leaf.written && !leaf.grad.defined());
    attach(p, leaf, "p");
    EXPECT_EQ(leaf.name, "p");
    EXPECT_EQ(leaf.shape, Shape{1});
    const Tensor frozen = tensor({1}, {1}, DType::BF16);
    Tape().backward(add(p, frozen), tensor({2}, {1}, DType::BF16));
    const Storage* const buffer = &leaf.grad.storage();
    EXPECT_EQ(leaf.grad.dtype(), t);
    EXPECT_EQ(buffer->kind(), Kind::Gradient);
    Tape().backward(add(p, frozen), tensor({0x1p-8}, {1}, DType::BF16));
    EXPECT_EQ(item(leaf.grad), t == DType::F32 ? 2 + 0x1p-8 : 2)
        << "the sum needs 10 bits, more than bf16 has";
    leaf.zero();
    Tape().backward(add(p, p));
    EXPECT_EQ(item(leaf.grad), 2);
    EXPECT_EQ(&leaf.grad.storage(), buffer);
  }
}

TEST_F(L02_TapeUses, ATensorAttachedAnewHasAnotherGradient) {
  const int64_t before = x.slot.id;
  Tensor copy = x;
  attach(copy, leaf_w, "again");
  EXPECT_NE(copy.slot.id, before);
  EXPECT_NE(copy.slot.id, w.slot.id);
  Tape tape;
  tape.backward(add(scale(x, 2), scale(copy, 3)));
  EXPECT_EQ(item(leaf_x.grad), 2);
  EXPECT_EQ(item(leaf_w.grad), 3);
}

TEST_F(L02_TapeUses, UnsharedIsTheTensorItselfOrACopy) {
  Tensor a = tensor({1, 2}, {2}, DType::BF16);
  const Storage* const storage = &a.storage();
  EXPECT_EQ(&unshared(a).storage(), storage);
  const Tensor view = a.reshape({2, 1}), copy = unshared(view);
  EXPECT_NE(&copy.storage(), storage);
  EXPECT_EQ(to_host<double>(copy), (std::vector<double>{1, 2}));
  EXPECT_EQ(copy.shape(), (Shape{2, 1}));
  EXPECT_EQ(copy.dtype(), DType::BF16);
  EXPECT_EQ(copy.storage().kind(), Kind::Temporary);
  EXPECT_EQ(copy.storage().name(), "gradient");
}

TEST_F(L02_TapeUses, APassedGradientIsSharedAndTheCallersIsNotWrittenTo) {
  Tensor p = trains(tensor(std::vector<double>(1000, 1), {1000}));
  const Tensor dy = tensor(std::vector<double>(1000, 1), {1000});
  {
    Tape tape;
    const Tensor y = add(scale(p, 2), scale(p, 3));
    context.device.meter().reset_totals();
    tape.backward(y, dy);
    EXPECT_EQ(meter.totals(OpClass::Elementwise).calls, 2) << "the two scales; add copies nothing";
  }
  Tape tape;
  const Tensor h = scale(p, 2);
  tape.backward(add(h, scale(h, 3)), dy);  // h's gradient is dy, to which 3 dy is added
  EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(1000, 5 + 8));
  EXPECT_EQ(to_host<double>(dy), std::vector<double>(1000, 1));
}

TEST_F(L02_TapeUses, WhatANodeSavedIsFreedBeforeTheNextOneRuns) {
  Tensor p = tensor(std::vector<double>(1000, 0.1), {1000}), q = tensor(std::vector<double>(1000, 0), {1000});
  Leaf leaf_p, leaf_q;
  attach(p, leaf_p, "p"), attach(q, leaf_q, "q");
  Tape tape;
  const Tensor y = scale(tanh(add(tanh(p), q)), 2);
  EXPECT_EQ(meter.now()[Kind::Activation], 8000);
  leaf_q.on_final = [&](Leaf&) {
    EXPECT_EQ(meter.now()[Kind::Activation], 4000) << "only the activation of the first tanh";
  };
  tape.backward(y, tensor(std::vector<double>(1000, 1), {1000}));
  EXPECT_EQ(meter.now()[Kind::Activation], 0);
}

TEST_F(L02_TapeUses, OnlyTemporariesThatAreSavedBecomeActivations) {
  for (int k = 0; k < kKinds; ++k) {
    Tensor p(context.device, {4}, DType::F32, Kind(k), "p");
    Leaf leaf;
    attach(p, leaf, "p");
    {
      const NoTape none;
      gelu(p);
      EXPECT_EQ(p.storage().kind(), Kind(k)) << "nothing is saved without a tape";
    }
    Tape tape;
    gelu(p);  // saves p
    EXPECT_EQ(p.storage().kind(), Kind(k) == Kind::Temporary ? Kind::Activation : Kind(k));
    const Tensor unused(context.device, {4}, DType::F32, Kind::Temporary, "unused");
    add(p, unused);  // saves nothing
    EXPECT_EQ(unused.storage().kind(), Kind::Temporary);
  }
}

TEST_F(L02_TapeUses, CheckNanReadsEveryOpAndPassesWhatIsFinite) {
  context.check_finite = true;
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)})
    expect_refused("; this is the first op", [&] { scale(tensor({1, 2, bad}, {3}), 1); });
  expect_refused("scale: element 2 of the output [3] is -inf", [&] {
    scale(tensor({1, 2, -INFINITY}, {3}), 1);
  });
  Tape tape;
  EXPECT_EQ(item(scale(x, 3)), 3);
  const NoTape none;
  expect_refused("tanh: element 0", [&] { tanh(tensor({NAN}, {1})); });
  context.check_finite = false;
  scale(tensor({NAN}, {1}), 1);
}

TEST_F(L02_TapeUses, OnlyWhatIsSavedStaysAlive) {
  Tensor p = trains(tensor(std::vector<double>(1000, 1), {1000}));
  Tape tape;
  const Tensor y = scale(scale(scale(p, 2), 3), 5);
  EXPECT_EQ(meter.now()[Kind::Temporary], 4000) << "only y: its node knows the other tensors as slots";
  ASSERT_EQ(tape.nodes().size(), 3u);
  for (const Node& node : tape.nodes()) {
    EXPECT_TRUE(node.saved.empty());
    EXPECT_EQ(node.inputs[0].shape, Shape{1000});
    EXPECT_EQ(node.outputs[0].dtype, DType::F32);
    EXPECT_EQ(node.outputs[0].slot.leaf, nullptr);
  }
  EXPECT_EQ(*tape.nodes()[0].inputs[0].slot.leaf, &leaf);
  EXPECT_EQ(tape.nodes()[2].outputs[0].slot.id, y.slot.id);
}

}  // namespace
}  // namespace gradus
