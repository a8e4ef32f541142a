// Which pairs of query and key the ranks of a ring meet (src/parallel/ring_attention.h).
#include <gtest/gtest.h>

#include <set>

#include "tests/parallel/zigzag_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L19_RingAttention, ZigzagHasEachTokenOnce) {
  for (int64_t ranks = 1; ranks <= 9; ++ranks)
    for (const int64_t count : {1, 2, 5}) {
      const int64_t T = 2 * ranks * count;
      std::set<int64_t> met;
      for (int64_t r = 0; r < ranks; ++r) {
        const Zigzag z = zigzag(T, r, ranks);
        EXPECT_EQ(z.count, count);
        EXPECT_EQ(z.begin[0], r * count);
        EXPECT_EQ(z.begin[1], (2 * ranks - 1 - r) * count);
        for (const int64_t t : tokens_of(T, r, ranks)) EXPECT_TRUE(met.insert(t).second) << t;
      }
      EXPECT_EQ(int64_t(met.size()), T);
      EXPECT_EQ(*met.begin(), 0);
      EXPECT_EQ(*met.rbegin(), T - 1);
    }
  for (const auto& [T, ranks] : {std::pair<int64_t, int64_t>{7, 1}, {6, 2}, {10, 4}, {1, 1}, {9, 3}})
    expect_refused(std::to_string(T), [&] { zigzag(T, 0, ranks); });
}

// Every pair of query and key is met once; with a causal mask, only pairs whose key is not later.
TEST(L19_RingAttention, ChunkPairsMeetEachPairOnce) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (int64_t ranks = 1; ranks <= 9; ++ranks) {
      const int64_t count = 3, T = 2 * ranks * count;
      std::vector<int> met(static_cast<size_t>(T * T));
      for (int64_t q = 0; q < ranks; ++q)
        for (int64_t k = 0; k < ranks; ++k)
          for (const ChunkPair& pair : chunk_pairs(mask, q, k, ranks)) {
            const int64_t of_q = zigzag(T, q, ranks).begin[pair.queries],
                          of_k = zigzag(T, k, ranks).begin[pair.keys];
            for (int64_t i = 0; i < count; ++i)
              for (int64_t j = 0; j < (pair.mask == Mask::Causal ? i + 1 : count); ++j)
                ++met[size_t((of_q + i) * T + of_k + j)];
          }
      for (int64_t i = 0; i < T; ++i)
        for (int64_t j = 0; j < T; ++j)
          ASSERT_EQ(met[size_t(i * T + j)], mask == Mask::None || j <= i) << ranks << ": " << i << ", " << j;
    }
}

// All ranks have the same number of pairs at every step of the ring, in whichever direction it goes.
TEST(L19_RingAttention, PairsAreBalancedAtEveryStep) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (int64_t ranks = 1; ranks <= 9; ++ranks)
      for (const int64_t count : {1, 4}) {
        const int64_t T = 2 * ranks * count;
        int64_t all = 0;
        for (int64_t step = 0; step < ranks; ++step)
          for (int64_t r = 0; r < ranks; ++r) {
            const auto pairs = [&](int64_t rank, int64_t of_keys) {
              return count_pairs(chunk_pairs(mask, rank, of_keys % ranks, ranks), count);
            };
            all += pairs(r, r + step);
            EXPECT_EQ(pairs(r, r + step), pairs(0, step))
                << ranks << " ranks, step " << step << ", rank " << r;
            EXPECT_EQ(pairs(r, r + ranks - step), pairs(0, ranks - step))
                << ranks << ", " << step << ", " << r;
          }
        EXPECT_EQ(all, mask == Mask::Causal ? T * (T + 1) / 2 : T * T) << ranks;
      }
}

}  // namespace
}  // namespace gradus
