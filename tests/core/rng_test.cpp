// The host's random numbers: addressable, repeatable, with the right distributions.
#include "src/core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace gradus {
namespace {

TEST(L01_CoreRng, DrawIDependsOnNothingButSeedStreamAndI) {
  Rng rng(5, 7);
  std::vector<double> in_order;
  for (int i = 0; i < 100; ++i) in_order.push_back(i % 2 ? rng.normal() : rng.uniform());
  for (int i = 99; i >= 0; --i) {
    Rng at(5, 7, uint64_t(i));
    EXPECT_EQ(i % 2 ? at.normal() : at.uniform(), in_order[size_t(i)]) << "draw " << i;
  }
  EXPECT_EQ(rng.counter(), 100u);
  Rng restored(rng.seed(), rng.stream(), rng.counter());
  EXPECT_EQ(restored.bits64(), rng.bits64());
}

TEST(L01_CoreRng, StreamsAndSeedsDiffer) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (uint64_t stream = 0; stream < 20; ++stream)
      for (Rng rng(seed, stream); rng.counter() < 20;) seen.insert(rng.bits64());
  EXPECT_EQ(seen.size(), 8000u);
}

// Random123's known answers for philox4x32-10: 6627e8d5 e169c58d bc57ac4c 9b00dbd8 for zeros, and two more.
// Figures in the lessons' pages depend on them. The normal is Box and Muller's, computed in Python.
TEST(L01_CoreRng, DrawsAreThoseOfPhilox) {
  EXPECT_EQ(Rng(0, 0).bits64(), 0x6627e8d5e169c58du);
  EXPECT_EQ(Rng(~0ull, ~0ull, ~0ull).bits64(), 0x408f276d41c83b0eu);
  EXPECT_EQ(Rng(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88).bits64(), 0xd16cfe0994fdccebu);
  EXPECT_EQ(Rng(0, 0).uniform(), 0.3990464708489645);
  EXPECT_NEAR(Rng(0, 0).normal(), -0.12151797714890024, 1e-14);
  EXPECT_EQ(Rng(0, 0).below(1000), 0x6627e8d5e169c58du % 1000);
}

TEST(L01_CoreRng, ADrawIsAStepOfTheCounterButForWhatIsDrawnAgain) {
  Rng rng(3, 4);
  rng.bits64(), rng.uniform(), rng.normal(), rng.below(uint64_t(1) << 63);
  EXPECT_EQ(rng.counter(), 4u) << "2^63 divides 2^64: no draw is rejected";
  EXPECT_EQ(rng.seed(), 3u);
  EXPECT_EQ(rng.stream(), 4u);
  const uint64_t n = (uint64_t(1) << 63) + 1;  // 2^63 - 1 of 2^64 draws would favour some values
  int draws = 0;
  for (; rng.counter() < 2004; ++draws) ASSERT_LT(rng.below(n), n);
  EXPECT_NEAR(draws, 1000, 5 * std::sqrt(1000 * 0.5)) << "every second draw is rejected";
}

// Bounds: 5 standard errors of the mean of N draws, so a correct generator fails once in 1.7 million seeds;
// the seed is fixed.
constexpr int kDraws = 200'000;

TEST(L01_CoreRng, UniformHasItsMomentsAndCells) {
  Rng rng(1, 2);
  double sum = 0, sum2 = 0, least = 1, most = 0;
  std::vector<int64_t> cells(100);
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
    sum2 += x * x;
    least = std::min(least, x);
    most = std::max(most, x);
    ++cells[size_t(x * 100)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(sum2 / kDraws, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDraws));  // var(x^2) = 1/5 - 1/9
  EXPECT_LT(least, 1e-4);
  EXPECT_GT(most, 1 - 1e-4);
  double chi2 = 0;
  const double expected = kDraws / 100.0;
  for (const int64_t n : cells) chi2 += (double(n) - expected) * (double(n) - expected) / expected;
  EXPECT_NEAR(chi2, 99, 5 * std::sqrt(2 * 99.0));  // chi-squared with 99 degrees: mean 99, variance 198
}

TEST(L01_CoreRng, NormalHasItsMomentsAndTails) {
  Rng rng(1, 3);
  double sum = 0, sum2 = 0, sum3 = 0, sum4 = 0, product = 0, before = 0;
  int beyond2 = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    sum2 += x * x;
    sum3 += x * x * x;
    sum4 += x * x * x * x;
    product += x * before;
    before = x;
    beyond2 += std::abs(x) > 2;
  }
  const double error = 5 / std::sqrt(double(kDraws));  // times the standard deviation of a term
  EXPECT_NEAR(sum / kDraws, 0, error);
  EXPECT_NEAR(sum2 / kDraws, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(sum3 / kDraws, 0, error * std::sqrt(15.0));
  EXPECT_NEAR(sum4 / kDraws, 3, error * std::sqrt(96.0));
  EXPECT_NEAR(product / kDraws, 0, error) << "neighbours are correlated";
  const double p = std::erfc(2 / std::sqrt(2.0));  // 0.0455
  EXPECT_NEAR(double(beyond2) / kDraws, p, error * std::sqrt(p * (1 - p)));
}

TEST(L01_CoreRng, BelowIsUnbiasedAndInRange) {
  EXPECT_THROW(Rng(1, 1).below(0), Error);
  Rng rng(1, 4);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rng.below(1), 0u);
  std::vector<int> cells(7);
  for (int i = 0; i < kDraws; ++i) ++cells[rng.below(7)];
  const double p = 1.0 / 7;
  for (const int n : cells) EXPECT_NEAR(double(n) / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws));
  // With n = 3 * 2^62, plain x % n would put 1/2 of the draws below 2^62; without bias it is 1/3.
  const uint64_t n = uint64_t(3) << 62;
  int low = 0;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t x = rng.below(n);
    ASSERT_LT(x, n);
    low += x < uint64_t(1) << 62;
  }
  EXPECT_NEAR(double(low) / kDraws, 1.0 / 3, 5 * std::sqrt(2.0 / 9 / kDraws));
}

}  // namespace
}  // namespace gradus
