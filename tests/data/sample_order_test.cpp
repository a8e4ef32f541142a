// The order of samples: each sample once per epoch, a function of only (seed, position).
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/data/sample_order.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::vector<int64_t> epoch(const SampleOrder& order, int64_t which) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < order.samples(); ++i) samples.push_back(order.at(which * order.samples() + i));
  return samples;
}
std::vector<int64_t> all(int64_t n) {
  std::vector<int64_t> samples(static_cast<size_t>(n));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

TEST(L14_SampleOrder, EachSampleIsOnceInEachEpoch) {
  for (const int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 257, 1000})
    for (const int64_t e : {0, 1, 2, 100}) {
      std::vector<int64_t> samples = epoch(SampleOrder(n, 7), e);
      std::sort(samples.begin(), samples.end());
      ASSERT_EQ(samples, all(n)) << n << " samples, epoch " << e;
    }
}

TEST(L14_SampleOrder, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  const SampleOrder a(100, 1), b(100, 2);
  EXPECT_EQ(epoch(a, 3), epoch(SampleOrder(100, 1), 3));
  EXPECT_NE(epoch(a, 0), epoch(a, 1));
  EXPECT_NE(epoch(a, 0), epoch(b, 0));
  EXPECT_NE(epoch(a, 0), all(100));
  EXPECT_NE(epoch(a, 1), epoch(b, 0)) << "a seed must not act like an epoch";
  EXPECT_NE(epoch(a, 0), epoch(b, 1));
}

TEST(L14_SampleOrder, AnEpochIsAsManyPositionsAsThereAreSamples) {
  const SampleOrder order(10, 1);
  EXPECT_EQ(order.epoch_of(0), 0);
  EXPECT_EQ(order.epoch_of(9), 0);
  EXPECT_EQ(order.epoch_of(10), 1);
  EXPECT_EQ(order.epoch_of(25), 2);
}

// Over 4,000 epochs of 8 samples, each sample is at each place 500 times, with a standard deviation of 21.
TEST(L14_SampleOrder, EachSampleComesToEachPlaceAboutEquallyOften) {
  const SampleOrder order(8, 11);
  int64_t times[8][8] = {};
  for (int64_t p = 0; p < 8 * 4000; ++p) ++times[p % 8][order.at(p)];
  for (const auto& place : times)
    for (const int64_t n : place) {
      EXPECT_GT(n, 500 - 5 * 21);
      EXPECT_LT(n, 500 + 5 * 21);
    }
}

TEST(L14_SampleOrder, OfManySamplesNoTwoAreTheSame) {
  const SampleOrder order((int64_t(1) << 62) - 1, 3);
  std::vector<int64_t> samples;
  for (int64_t p = 0; p < 10'000; ++p) samples.push_back(order.at(p));
  std::sort(samples.begin(), samples.end());
  EXPECT_EQ(std::adjacent_find(samples.begin(), samples.end()), samples.end());
  EXPECT_GE(samples.front(), 0);
  EXPECT_LT(samples.back(), order.samples());
}

TEST(L14_SampleOrder, RefusesNoSamplesAndPositionsBeforeTheFirst) {
  for (const int64_t n : {int64_t(0), int64_t(-1), int64_t(1) << 62})
    expect_refused("sample order: ", [&] { SampleOrder(n, 1); });
  expect_refused("sample order: position -1", [] { SampleOrder(3, 1).at(-1); });
}

}  // namespace
}  // namespace gradus
