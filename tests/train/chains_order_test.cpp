// Calls that must not be fused, or not be made before a certain call.
#include "src/ops/ops.h"
#include "tests/train/chains_testing.h"

namespace gradus {
namespace {

TEST(L16_ChainsOrder, ACallStaysBehindWhatItReads) {
  const FusedChains fused = expect_same_to_the_bit({.shape = {3, 5}, .ops = [](OpsStep& s) {
                                                      const Tensor a = scale(s.x, 0.5), b = softmax(a);
                                                      return scale(add(a, b), 3);
                                                    }});
  EXPECT_EQ(fused.chains, (Names{{"add + scale", 1}}));
}

// A tape's first dropout comes after copy_step, which stores the step that determines the masks.
TEST(L16_ChainsOrder, DropoutStaysBehindTheStepThatItReads) {
  RecordProperty("exercise", "16.5");
  const FusedChains fused = expect_same_to_the_bit(
      {.shape = {3, 5}, .ops = [](OpsStep& s) { return scale(dropout(multiply(s.x, s.x), 0.5), 2); }});
  EXPECT_EQ(fused.chains, (Names{{"dropout + scale", 1}}));
}

// The tensor with the step of the masks has been freed, and the next result has its memory.
TEST(L16_ChainsOrder, TheStepOfAMaskIsNotWrittenOver) {
  const FusedChains fused =
      expect_same_to_the_bit({.shape = {2, 64}, .ops = [](OpsStep& s) {
                                Tensor y = empty_like(s.x, "y");
                                const void* memory = nullptr;
                                {
                                  Tensor step(y.device(), {1}, DType::I64, Kind::Temporary, "step");
                                  memory = step.in().p;
                                  be(y).copy_step(ctx(y, cost::fill(1, DType::I64)), step.set());
                                  const RandomKey key{.seed = 3, .step = static_cast<const int64_t*>(memory)};
                                  run(&Backend::dropout, cost::dropout, y, s.x.in(), y.set(), 0.5f, key);
                                }
                                const Tensor z = scale(y, 2);
                                EXPECT_EQ(z.in().p, memory) << "the test needs memory that is used again";
                                return scale(gelu(z), 3);
                              }});
  EXPECT_EQ(fused.chains, (Names{{"scale + gelu_fwd + scale", 1}}));
}

// The product's result has the memory that softmax reads.
TEST(L16_ChainsOrder, ACallStaysBehindWhatReadsItsMemory) {
  expect_same_to_the_bit({.shape = {3, 5}, .ops = [](OpsStep& s) {
                            Tensor a = softmax(s.x);
                            const Tensor b = gelu(s.x), c = softmax(a);
                            const void* const memory = a.in().p;
                            a = {};
                            const Tensor d = multiply(b, s.x);
                            EXPECT_EQ(d.in().p, memory) << "the test needs memory that is used again";
                            return scale(add(c, d), 3);
                          }});
}

// Kernels as no op calls them: a sum over rows that the next call reads, and a tensor that overlaps a
// different one except for one element.
TEST(L16_ChainsOrder, ASumOverRowsIsFinishedBeforeItIsRead) {
  expect_same_to_the_bit({.shape = {33, 5}, .ops = [](OpsStep& s) {
                            Tensor a = scale(s.x, 0.5), y = empty_like(s.x, "y");
                            Tensor sum = empty(s.x, {5}, "sum");
                            run(&Backend::bias_bwd, cost::bias_bwd, a, a.in(), sum.set());
                            run(&Backend::bias_fwd, cost::bias_fwd, a, a.in(), sum.in(), y.set());
                            return scale(y, 2);
                          }});
}

// If a call were moved forward, it would pass a call that has its scratch memory.
TEST(L16_ChainsOrder, ACallStaysBehindWhoseScratchItWritesOver) {
  const auto ops = [](OpsStep& s) {
    const Tensor a = scale(s.x, 0.5), sum = empty(s.x, {33}, "sum");
    const Tensor& other = s.parameter("weight");  // with as many rows, in no chain with x
    run(&Backend::bias_bwd, cost::bias_bwd, other, other.in(), Tensor(sum).set());
    s.kept = {sum, gelu(a)};
    return scale(gelu(softmax(a)), 2);
  };
  {
    Context context("cpu", 3);
    OpsStep step({1, 33}, DType::F32, ops, 1);
    for (int64_t n = 0; n < 3; ++n) step.run(n);
    const auto calls = step.captured.calls();
    ASSERT_STREQ(calls[1].call->entry, "bias_bwd");
    ASSERT_STREQ(calls[2].call->entry, "gelu_fwd");
    EXPECT_EQ(calls[1].places.back().begin, calls[2].places[1].begin)
        << "the test needs memory that is used again";
  }
  expect_same_to_the_bit({.shape = {1, 33}, .ops = ops});
}

// A sum of 24 columns cannot be computed in rows of 4.
TEST(L16_ChainsOrder, SumsOfLongerRowsAreNotOneLoop) {
  expect_same_to_the_bit({.shape = {6, 4}, .ops = [](OpsStep& s) {
                            const NoTape none;
                            const Tensor a = scale(s.x, 2);
                            Tensor sum = empty(a, {24}, "sum");
                            const Tensor one_row = a.reshape({1, 24});
                            run(&Backend::bias_bwd, cost::bias_bwd, one_row, one_row.in(), sum.set());
                            s.kept = {sum};
                            return scale(layernorm(a, s.parameter("gamma"), s.parameter("beta")), 3);
                          }});
}

// An update writes the weights, which are read before and after it.
TEST(L16_ChainsOrder, ACallStaysBehindTheUpdateOfWhatItReads) {
  Numbers results[2];
  for (const bool fuses : {false, true}) {
    Context context("cpu", 3);
    Parameters parameters;
    Parameter& w = parameters.add("w", {1025}, uniform(DType::F32));
    w.assign(OpsStep::random(1025, 1));
    Sgd sgd(parameters);
    sgd.set_learning_rate(0.5);
    CapturedStep captured;
    Tensor sum;
    for (int s = 0; s < 5; ++s) {
      if (s == 3 && fuses) {
        const FusedChains fused = fuse_chains(captured, shared_compiler());
        EXPECT_EQ(fused.chains, (Names{{"scale + scale", 1}, {"multiply + scale", 1}}))
            << "before and after the update";
      }
      captured.run({}, [&] {
        sum = {};
        Tape tape;
        const Tensor twice = scale(w.value, 2);
        tape.backward(twice, twice.detach());
        sgd.step();
        parameters.zero_grad();
        const NoTape none;
        sum = scale(multiply(twice.detach(), w.value), 3);
      });
      results[fuses].push_back(to_host<double>(sum));
    }
    results[fuses].push_back(to_host<double>(w.value));
  }
  EXPECT_TRUE(results[1] == results[0]) << "the old weights are read";
}

TEST(L16_ChainsOrder, OverlappingTensorsAreNotOneLoop) {
  expect_same_to_the_bit({.shape = {255}, .ops = [](OpsStep& s) {
                            const Tensor whole = empty(s.x, {256}, "whole");
                            Tensor begin = whole.narrow(0, 255), end = whole.narrow(1, 255);
                            run(&Backend::scale, cost::scale, s.x, s.x.in(), end.set(), 0.f);
                            run(&Backend::scale, cost::scale, s.x, s.x.in(), begin.set(), 2.f);
                            return scale(add(s.x, end), 3);
                          }});
}

TEST(L16_ChainsOrder, RowsOfOtherLengthsAreNotOneLoop) {
  expect_same_to_the_bit({.shape = {6, 4}, .ops = [](OpsStep& s) {
                            const NoTape none;
                            const Tensor& one = s.parameter("gamma");
                            const Tensor a = layernorm(scale(s.x, 2), one, s.parameter("beta"));
                            const Tensor six = s.x.narrow(0, 1).reshape({4}), w = s.parameter("weight");
                            const Tensor b = scale(a, 2).reshape({2, 3, 4});
                            const Tensor c = add_positions(b, w.narrow(0, 3)).reshape({6, 4});
                            return add(layernorm(c, one, six), a);
                          }});
}

TEST(L16_ChainsOrder, RowsOfWhichNoneIsAPartOfTheOtherAreNotOneLoop) {
  expect_same_to_the_bit({.shape = {6, 4}, .ops = [](OpsStep& s) {
                            const NoTape none;
                            const Tensor a =
                                layernorm(scale(s.x, 2), s.parameter("gamma"), s.parameter("beta"));
                            const Tensor six = s.parameter("weight").reshape({4, 6});
                            Tensor y = empty(a, {4, 6}, "y");
                            run(&Backend::bias_fwd, cost::bias_fwd, y, a.in(), six.in(), y.set());
                            return scale(y, 2);
                          }});
}

// A table of positions that one call adds as a whole: an element per element, and an element per column.
TEST(L16_ChainsOrder, OneTensorWithTwoShapesInAChain) {
  expect_same_to_the_bit({.shape = {6, 4}, .ops = [](OpsStep& s) {
                            const NoTape none;
                            const Tensor& table = s.parameter("weight");
                            const Tensor a = add(s.x, table);
                            return scale(add_positions(a.reshape({2, 3, 4}), table), 2);
                          }});
}

}  // namespace
}  // namespace gradus
