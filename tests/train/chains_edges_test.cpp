// Chains of handwritten ops, of many shapes and dtypes.
#include <omp.h>

#include "src/ops/ops.h"
#include "tests/train/chains_testing.h"

namespace gradus {
namespace {

struct L16_ChainsOfElements : ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, L16_ChainsOfElements,
                         ::testing::Values(DType::F32, DType::BF16, DType::F16, DType::F64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Sizes around the parts that threads take, and around their last elements.
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

// Forward and backward, with calls that need rows: a norm, dropout, a bias, and their sums over rows.
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
    EXPECT_EQ(with_norms, 2) << "the norm or its gradient is not in a chain";
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
  for (const char* device : {"cpu", "emu"})
    for (const int64_t columns : {7, 500})  // a sample is shorter and longer than the numbers drawn at once
      expect_same_to_the_bit(
          {.shape = {3, 5, columns},
           .ops = [](OpsStep& s) { return scale(dropout(dropout(scale(s.x, 2), 0.5), 0.25, 35), 0.5); },
           .device = device});
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

// Twelve calls, each with a different tensor.
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
  EXPECT_EQ(std::count(name.begin(), name.end(), '+'), 10) << "the next add needs a 25th: " << name;
}

// The statistics of a norm, which no call needs.
TEST(L16_ChainsOfOps, OutputsThatAreNotWantedCountAmongTheTensors) {
  const FusedChains fused = expect_same_to_the_bit(
      {.shape = {5, 7}, .ops = [](OpsStep& s) {
         for (int i = 0; i < 11; ++i) s.kept.push_back(tanh(s.x));
         Tensor y = empty_like(s.x, "y");
         run(&Backend::layernorm_fwd, cost::layernorm_fwd, y, s.x.in(), s.parameter("gamma").in(),
             s.parameter("beta").in(), y.set(), Out{nullptr, DType::F32, Write::Set}, 1e-5f);
         for (size_t i = 0; i < 11; ++i) s.kept.push_back(y = add(y, s.kept[i]));
         return tanh(y);
       }});
  std::string longest;
  for (const auto& [name, count] : fused.chains)
    if (name.starts_with("layernorm_fwd")) longest = name;
  EXPECT_EQ(std::count(longest.begin(), longest.end(), '+'), 9) << "the next add needs a 25th: " << longest;
}

TEST(L16_ChainsOfOps, CallsWithoutElementsAreNotFused) {
  const FusedChains fused = expect_same_to_the_bit({.shape = {255}, .ops = [](OpsStep& s) {
                                                      scale(gelu(empty(s.x, {0}, "none")), 2);
                                                      return scale(gelu(s.x), 3);
                                                    }});
  EXPECT_EQ(fused.chains, (Names{{"gelu_fwd + scale", 1}}));
}

// bias_fwd takes a missing x for zero.
TEST(L16_ChainsOfOps, ABiasWithoutXIsNotFused) {
  const FusedChains fused =
      expect_same_to_the_bit({.shape = {3, 5}, .ops = [](OpsStep& s) {
                                Tensor y = empty_like(s.x, "y");
                                run(&Backend::bias_fwd, cost::bias_fwd, y, CBuf{nullptr, y.dtype()},
                                    s.parameter("beta").in(), y.set());
                                return scale(gelu(y), 2);
                              }});
  EXPECT_EQ(fused.chains, (Names{{"gelu_fwd + scale", 1}}));
}

// The batch needs no gradient.
TEST(L16_ChainsOfOps, ANormOfTheBatchHasNoGradientOfItsElements) {
  expect_same_to_the_bit({.shape = {3, 5}, .ops = [](OpsStep& s) {
                            const Tensor n = layernorm(s.x, s.parameter("gamma"), s.parameter("beta"));
                            return scale(multiply(n, s.parameter("weight")), 2);
                          }});
}

// The pool gives each op the memory of the op before the last one.
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
  EXPECT_EQ(fused.chains, (Names{{"scale + scale", 2}})) << "the same code, different numbers";
}

}  // namespace
}  // namespace gradus
