// Chains of ops written by hand, of many shapes and dtypes; and calls that must not be fused, or moved, or
// whose results must be stored.
#include <omp.h>

#include "src/ops/ops.h"
#include "tests/train/chains_testing.h"

namespace gradus {
namespace {

struct L16_ChainsOfElements : ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, L16_ChainsOfElements,
                         ::testing::Values(DType::F32, DType::BF16, DType::F16, DType::F64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// The parts that threads take, and their last elements.
TEST_P(L16_ChainsOfElements, OfEachSizeAreTheCallsToTheBit) {
  const int before = omp_get_max_threads();
  for (const int threads : {1, 4})
    for (const int64_t n : {1, 7, 255, 1025, 16384 * 3 + 1}) {
      omp_set_num_threads(threads);
      const FusedChains fused = expect_same_to_the_bit({.shape = {n},
                                                        .ops =
                                                            [](OpsStep& s) {
                                                              const Tensor a = gelu(scale(s.x, 0.75));
                                                              const Tensor m = multiply(a, s.x),
                                                                           e = gelu_erf(a);
                                                              return scale(add(m, e), -1.25);
                                                            },
                                                        .dtype = GetParam()});
      EXPECT_EQ(fused.chains, (Names{{"scale + gelu_fwd + multiply + gelu_erf_fwd + add + scale", 1}}));
    }
  omp_set_num_threads(before);
}

// Forward and backward, with what needs rows: a norm, dropout, a bias, and their sums over rows.
Tensor ops_of_rows(OpsStep& s) {
  const Tensor a = gelu(add(s.x, s.parameter("weight")));
  const Tensor n = layernorm(scale(a, 1.5), s.parameter("gamma"), s.parameter("beta"));
  const Tensor d = dropout(gelu_erf(n), 0.25);
  return add(scale(add_positions(d, s.parameter("positions")), 0.5), d);
}
struct L16_ChainsOfRows : ::testing::TestWithParam<std::tuple<DType, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, L16_ChainsOfRows,
                         ::testing::Combine(::testing::Values(DType::F32, DType::BF16),
                                            ::testing::Values(1, 5, 768 + 1)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param)) + "_columns";
                         });

TEST_P(L16_ChainsOfRows, OfEachShapeAreTheCallsToTheBit) {
  const auto [dtype, columns] = GetParam();
  for (const Shape& shape : {Shape{1, 1, columns}, {3, 11, columns}, {4, 25, columns}}) {
    const FusedChains fused = expect_same_to_the_bit({.shape = shape, .ops = ops_of_rows, .dtype = dtype});
    int64_t with_norms = 0;
    for (const auto& [name, count] : fused.chains)
      with_norms += count * (name.find("layernorm_fwd") != name.npos) +
                    count * (name.find("layernorm_bwd") != name.npos);
    EXPECT_EQ(with_norms, 2) << "the norm is not in a chain, or its gradient";
  }
}

TEST_P(L16_ChainsOfRows, GradientsOfTwoPassesAreAdded) {
  const auto [dtype, columns] = GetParam();
  for (const int passes : {2, 3})
    expect_same_to_the_bit({.shape = {3, 11, columns}, .ops = ops_of_rows, .dtype = dtype, .passes = passes});
}

TEST_P(L16_ChainsOfRows, OfOneOrFourThreadsAreTheSameBits) {
  const auto [dtype, columns] = GetParam();
  const int before = omp_get_max_threads();
  Numbers results[2];
  for (const int threads : {1, 4}) {
    omp_set_num_threads(threads);
    results[threads > 1] = run_ops({{4, 25, columns}, ops_of_rows, dtype}, true).results;
  }
  omp_set_num_threads(before);
  EXPECT_TRUE(results[0] == results[1]) << "the number of threads changes results";
}

TEST(L16_ChainsOfOps, ALinearsBiasAndItsGradient) {
  const FusedChains fused = expect_same_to_the_bit({.shape = {33, 33}, .ops = [](OpsStep& s) {
                                                      const Tensor w = s.parameter("weight");
                                                      const Tensor a =
                                                          gelu(linear(s.x, w, s.parameter("beta")));
                                                      return scale(linear(a, w, s.parameter("gamma")), 0.5);
                                                    }});
  int64_t sums = 0;
  for (const auto& [name, count] : fused.chains) sums += count * (name.find("bias_bwd") != name.npos);
  EXPECT_EQ(sums, 2) << "the gradients of two biases";
}

TEST(L16_ChainsOfOps, PartOfEachSampleHasItsOwnDropoutMask) {
  expect_same_to_the_bit({.shape = {3, 5, 7}, .ops = [](OpsStep& s) {
                            return scale(dropout(dropout(scale(s.x, 2), 0.5), 0.25, 35), 0.5);
                          }});
}

TEST(L16_ChainsOfOps, MoreThanOneChainCanHoldBecomeSeveral) {
  const FusedChains fused = expect_same_to_the_bit({.shape = {1025}, .ops = [](OpsStep& s) {
                                                      Tensor y = s.x;
                                                      for (int i = 0; i < 20; ++i)
                                                        y = scale(y, 1.01 + 0.01 * i);
                                                      return y;
                                                    }});
  int64_t calls = 0, chains = 0;
  for (const auto& [name, count] : fused.chains) {
    chains += count, calls += count * (1 + std::count(name.begin(), name.end(), '+'));
    EXPECT_LT(std::count(name.begin(), name.end(), '+'), KernelChain::kCalls) << name;
  }
  EXPECT_EQ(chains, 2);
  EXPECT_EQ(calls, 20);
}

TEST(L16_ChainsOfOps, MoreTensorsThanOneChainCanHoldBecomeSeveral) {
  expect_same_to_the_bit({.shape = {255}, .ops = [](OpsStep& s) {
                            for (int i = 0; i < 30; ++i) s.kept.push_back(scale(s.x, 1 + 0.01 * i));
                            return add(s.kept[3], s.kept[29]);
                          }});
}

// Twelve calls, and of each another tensor.
TEST(L16_ChainsOfOps, MoreInputsThanOneChainCanHoldBecomeSeveral) {
  const FusedChains fused =
      expect_same_to_the_bit({.shape = {255}, .ops = [](OpsStep& s) {
                                for (int i = 0; i < 14; ++i) s.kept.push_back(tanh(s.x));
                                for (int i = 1; i < 13; ++i)
                                  s.kept.push_back(add(s.kept.back(), s.kept[size_t(i)]));
                                return tanh(s.kept.back());
                              }});
  ASSERT_EQ(fused.chains.size(), 1u);
  const std::string name = fused.chains.begin()->first;
  EXPECT_EQ(std::count(name.begin(), name.end(), '+'), 10) << "with the last add 25 tensors: " << name;
}

// The second is added to the first, and both are read in the chain.
TEST(L16_ChainsOfOps, TheGradientsOfATensorThatIsUsedTwiceAreAdded) {
  expect_same_to_the_bit({.shape = {3, 5}, .ops = [](OpsStep& s) {
                            const Tensor a = scale(add(s.x, s.parameter("weight")), 0.5);
                            const Tensor b = gelu(a), c = scale(a, 3);
                            return multiply(b, c);
                          }});
}

// The pool gives each op the memory of the one before the last.
TEST(L16_ChainsOfOps, MemoryThatIsUsedAgainAndAgain) {
  const FusedChains fused = expect_same_to_the_bit({.shape = {1025}, .ops = [](OpsStep& s) {
                                                      Tensor x = scale(s.x, 0.5);
                                                      for (int i = 0; i < 9; ++i)
                                                        x = add(gelu(x), scale(x, 0.75));
                                                      return x;
                                                    }});
  EXPECT_GE(fused.chains.size(), 2u);
}

TEST(L16_ChainsOfOps, NumbersAreEachCallsOwn) {
  const FusedChains fused = expect_same_to_the_bit({.shape = {2, 16}, .ops = [](OpsStep& s) {
                                                      const Tensor a = softmax(scale(scale(s.x, 2), 3));
                                                      return softmax(scale(scale(a, 5), 7));
                                                    }});
  EXPECT_EQ(fused.chains, (Names{{"scale + scale", 2}})) << "one code, other numbers";
}

TEST(L16_ChainsOrder, ACallStaysBehindWhatItReads) {
  const FusedChains fused = expect_same_to_the_bit({.shape = {3, 5}, .ops = [](OpsStep& s) {
                                                      const Tensor a = scale(s.x, 0.5), b = softmax(a);
                                                      return scale(add(a, b), 3);
                                                    }});
  EXPECT_EQ(fused.chains, (Names{{"add + scale", 1}}));
}

// A tape's first dropout comes after copy_step, which notes the step that the masks are drawn from.
TEST(L16_ChainsOrder, DropoutStaysBehindTheStepThatItReads) {
  RecordProperty("exercise", "16.5");
  const FusedChains fused = expect_same_to_the_bit(
      {.shape = {3, 5}, .ops = [](OpsStep& s) { return scale(dropout(multiply(s.x, s.x), 0.5), 2); }});
  EXPECT_EQ(fused.chains, (Names{{"dropout + scale", 1}}));
}

// The step that the masks are drawn from has been given back, and its memory belongs to the next result.
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

// Kernels as no op calls them: a sum over rows that the next one reads, and a tensor that is another's but
// for an element.
TEST(L16_ChainsOrder, ASumOverRowsIsFinishedBeforeItIsRead) {
  expect_same_to_the_bit({.shape = {33, 5}, .ops = [](OpsStep& s) {
                            Tensor a = scale(s.x, 0.5), y = empty_like(s.x, "y");
                            Tensor sum = empty(s.x, {5}, "sum");
                            run(&Backend::bias_bwd, cost::bias_bwd, a, a.in(), sum.set());
                            run(&Backend::bias_fwd, cost::bias_fwd, a, a.in(), sum.in(), y.set());
                            return scale(y, 2);
                          }});
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

// A table of positions that another call adds whole: an element each, and an element of each column.
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
