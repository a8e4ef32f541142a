// The current context and recording: contexts, tapes and scopes without a tape end in every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "src/autograd/tape.h"
#include "src/ops/ops.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L02_Context, TheLatestThatIsLeftIsCurrentInEveryOrderOfEnding) {
  std::vector<int> order{0, 1, 2};
  do {
    std::vector<std::unique_ptr<Context>> contexts;
    for (int i = 0; i < 3; ++i) contexts.push_back(std::make_unique<Context>("cpu", i));
    for (const int end : order) {
      contexts[end].reset();
      const auto last =
          std::find_if(contexts.rbegin(), contexts.rend(), [](const auto& c) { return c != nullptr; });
      if (last != contexts.rend())
        EXPECT_EQ(&current(), last->get());
      else
        EXPECT_THROW(current(), Error);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(L02_Context, OnceMadeCurrentItIsTheLatestAndNoMoreThanOnce) {
  Context a("cpu", 1);
  auto b = std::make_unique<Context>("cpu", 2), c = std::make_unique<Context>("cpu", 3);
  b->make_current(), c->make_current(), b->make_current();
  EXPECT_EQ(&current(), b.get());
  {
    Context inner("cpu", 4);
    EXPECT_EQ(&current(), &inner);
  }
  EXPECT_EQ(&current(), b.get());
  b.reset();
  EXPECT_EQ(&current(), c.get());
  a.make_current();
  c.reset();
  EXPECT_EQ(&current(), &a);
}

struct L02_Recording : ::testing::Test {
  Context context{"cpu", 5};
  Leaf leaf;
  Tensor x = from_host(context.device, std::vector<double>{0.5}, {1}, DType::F32, Kind::Weight, "x");
  void SetUp() override { attach(x, leaf, "x"); }
};

TEST_F(L02_Recording, TapesEndInAnyOrderAndNoneIsRecordedOnAfterItsEnd) {
  for (const bool first_ends_first : {true, false}) {
    auto a = std::make_unique<Tape>();
    auto b = std::make_unique<Tape>();
    EXPECT_EQ(context.tape(), b.get());
    (first_ends_first ? a : b).reset();
    EXPECT_EQ(context.tape(), (first_ends_first ? b : a).get());
    EXPECT_TRUE(tanh(x).slot.wanted());
    a.reset(), b.reset();
    EXPECT_EQ(context.tape(), nullptr);
    EXPECT_FALSE(tanh(x).slot.wanted());
    EXPECT_EQ(leaf.uses, 0);
  }
}

TEST_F(L02_Recording,
       TwoTapesAliveAsInAPipeline) {  // forward 1, forward 2, the end of 1, backward 1, backward 2
  Tape first;
  const Tensor h = scale(x, 2);
  auto second = std::make_unique<Tape>();
  const Tensor other = scale(x, 7);
  first.make_current();
  const Tensor y = scale(h, 3);
  EXPECT_EQ(first.nodes().size(), 2u);
  EXPECT_EQ(second->nodes().size(), 1u);
  first.backward(y);
  EXPECT_EQ(item(leaf.grad), 6);
  second->backward(other);
  EXPECT_EQ(item(leaf.grad), 13);
  second.reset();
  EXPECT_EQ(context.tape(), &first);
}

TEST_F(L02_Recording, AStretchWithoutATapeEndsBeforeOrAfterWhatIsInIt) {
  Tape tape;
  auto none = std::make_unique<NoTape>();
  EXPECT_FALSE(tanh(x).slot.wanted());
  auto inner = std::make_unique<Tape>();
  EXPECT_TRUE(tanh(x).slot.wanted());
  none.reset();
  EXPECT_EQ(context.tape(), inner.get());
  inner.reset();
  EXPECT_EQ(context.tape(), &tape);
  none = std::make_unique<NoTape>();
  inner = std::make_unique<Tape>();
  inner.reset();
  EXPECT_EQ(context.tape(), nullptr);
  none.reset();
  EXPECT_EQ(context.tape(), &tape);
}

using L03_Recording = L02_Recording;
TEST_F(L03_Recording, AnEvaluationLastsUntilTheLastOneEnds) {
  EXPECT_FALSE(context.evaluates());
  auto outer = std::make_unique<Evaluation>();
  auto inner = std::make_unique<Evaluation>();
  outer.reset();
  EXPECT_TRUE(context.evaluates());
  {
    const NoTape none;
    EXPECT_TRUE(context.evaluates());
    const Tape tape;  // records, but the Evaluation still applies
    EXPECT_TRUE(tanh(x).slot.wanted());
    EXPECT_TRUE(context.evaluates());
  }
  inner.reset();
  EXPECT_FALSE(context.evaluates());
}

TEST_F(L02_Recording, ATapeRecordsTheContextInWhichItBegan) {
  Tape tape;
  {
    Context other("cpu", 6);
    EXPECT_EQ(other.tape(), nullptr);
    const Evaluation evaluation;
    EXPECT_FALSE(context.evaluates());
    EXPECT_EQ(context.tape(), &tape);
  }
  const Tensor y = tanh(x);
  Context other("meta", 7);
  tape.backward(y);  // gradients go to the tape's context, whichever is current
  EXPECT_EQ(&leaf.grad.device(), &context.device);
}

TEST(L02_Context, ATapeMayOutliveItsContextIfItHoldsNothing) {
  auto context = std::make_unique<Context>();
  Tape tape;
  const Evaluation evaluation;
  context.reset();
  expect_refused("declare the context before the tape", [&] { tape.make_current(); });
  Context next;
  EXPECT_EQ(next.tape(), nullptr);
  EXPECT_FALSE(next.evaluates());
}

TEST_F(L03_Recording, EachTapeCountsItsOwnRandomOps) {
  EXPECT_EQ(context.dropout_ordinal(), 0u);
  Tape outer;
  context.dropout_ordinal() += 2;
  {
    const NoTape none;  // part of the same forward pass
    EXPECT_EQ(context.dropout_ordinal()++, 2u);
  }
  {
    const Tape inner;
    EXPECT_EQ(context.dropout_ordinal()++, 0u);
    outer.make_current();
    EXPECT_EQ(context.dropout_ordinal(), 3u);
  }
  EXPECT_EQ(context.dropout_ordinal(), 3u);
}

TEST(L02_Context, ByDefaultItIsTheCpusWithSeedOneAndNoLimit) {
  EXPECT_NE(refusal([] { current(); }).find("no context: declare `Context context"), std::string::npos);
  Context context;
  EXPECT_EQ(context.device.name(), std::string_view("cpu"));
  EXPECT_EQ(context.seed, 1u);
  EXPECT_EQ(context.first_sample, 0);
  EXPECT_EQ(context.last_slot, 0);
  EXPECT_FALSE(context.check_finite);
  EXPECT_EQ(context.tape(), nullptr);
  EXPECT_FALSE(context.evaluates());
  EXPECT_EQ(context.dropout_ordinal(), 0u);
  const Tensor large(context.device, {int64_t(1) << 26}, DType::F32, Kind::Data, "large");
  Context limited("cpu", 1, int64_t(100) << 20);
  EXPECT_THROW(Tensor(limited.device, {int64_t(1) << 26}, DType::F32, Kind::Data, "large"), Error);
}

TEST(L02_Context, ARangeIsOfTheContextInWhichItBegan) {
  Context context;
  {
    const ProfileRange range("outer");
    Context other;
    const ProfileRange inner("inner");
    EXPECT_EQ(context.device.allocator().range(), "outer");
    EXPECT_EQ(other.device.allocator().range(), "inner");
    context.make_current();
  }
  EXPECT_EQ(context.device.allocator().range(), "");
}

TEST_F(L03_Recording, ADropoutKeyIsOfTheSeedTheOpAndTheSample) {
  context.first_sample = 12;
  for (uint32_t op = 0; op < 3; ++op) {
    const RandomKey key = context.next_dropout_key();
    EXPECT_EQ(key.seed, 5u);
    EXPECT_EQ(key.ordinal, op);
    EXPECT_EQ(key.first_sample, 12);
  }
  const Tape tape;
  EXPECT_EQ(context.next_dropout_key().ordinal, 0u);
  EXPECT_EQ(context.dropout_ordinal(), 1u);
  for (const uint64_t seed : {uint64_t(1) << 32, UINT64_MAX})
    EXPECT_EQ(Context("cpu", seed).next_dropout_key().seed, seed);
}

}  // namespace
}  // namespace gradus
