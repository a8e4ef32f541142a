// emu's warp functions: the values that lanes exchange, and the order in which threads go on after they met.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/kernels/emu_testing.h"

namespace gradus {
namespace {

using L01_EmuWarps = EmuTest;

// The order in which threads reach a warp function and go on after it: warp by warp, or all warps together.
TEST_F(L01_EmuWarps, AWarpThatHasMetGoesOnAtOnceButInTheShuffledOrder) {
  for (const Order order : kOrders) {
    emu::set_order(order);
    std::vector<int> warps;
    launch("meeting", 1, 96, 0, [&] {
      if (threadIdx.x % 32 == 0) warps.push_back(int(threadIdx.x / 32));
      __syncwarp();
      if (threadIdx.x % 32 == 0) warps.push_back(int(threadIdx.x / 32));
    });
    if (order == Order::Shuffled) {
      EXPECT_EQ(std::set<int>(warps.begin(), warps.begin() + 3).size(), 3u);
      continue;
    }
    const std::vector<int> upwards{0, 0, 1, 1, 2, 2}, downwards{2, 2, 1, 1, 0, 0};
    EXPECT_EQ(warps, order == Order::Forward ? upwards : downwards);
  }
}

TEST_F(L01_EmuWarps, AllMeansAllLanesThatThereAre) {
  std::vector<int> all(8), not_all(8);
  launch("short_warp", 1, 8, 0, [&] {
    all[threadIdx.x] = __ballot_sync(0xFFFFFFFF, 1) == 0xFF;
    not_all[threadIdx.x] = __ballot_sync(0xFFFFFFFF, threadIdx.x != 5) == 0xFF;
  });
  EXPECT_EQ(all, std::vector<int>(8, 1));
  EXPECT_EQ(not_all, std::vector<int>(8, 0));
}

TEST_F(L01_EmuWarps, ShufflesAndVotesAreThoseOfAWarp) {
  for (const Order order : kOrders) {
    emu::set_order(order);
    std::vector<int> from_3(72), down(72), swapped(72);
    std::vector<uint32_t> odd(72);
    std::vector<double> wide(72);
    launch("warp", 1, 72, 0, [&] {  // two whole warps, and 8 lanes of a third
      const int t = int(threadIdx.x);
      const uint32_t mask = t < 64 ? 0xFFFFFFFF : 0xFF;
      from_3[t] = __shfl_sync(mask, t, 3);
      down[t] = __shfl_down_sync(mask, t, 2);
      swapped[t] = __shfl_xor_sync(mask, t, 1);
      odd[t] = __ballot_sync(mask, t % 2);
      wide[t] = __shfl_sync(mask, t + 0.5, 1);
    });
    for (int t = 0; t < 72; ++t) {
      const int warp = t / 32 * 32, lanes = t < 64 ? 32 : 8;
      EXPECT_EQ(from_3[t], warp + 3);
      EXPECT_EQ(down[t], t % 32 + 2 < lanes ? t + 2 : t);
      EXPECT_EQ(swapped[t], t ^ 1);
      EXPECT_EQ(odd[t], t < 64 ? 0xAAAAAAAA : 0xAA);
      EXPECT_EQ(wide[t], warp + 1.5);
    }
  }
}

// Also for lanes that existed in a longer block, which ran earlier on the same stacks.
TEST_F(L01_EmuWarps, ALaneThatIsNotThereGivesTheCallersOwn) {
  for (const Order order : kOrders)
    for (const int lanes : {1, 8, 31, 32})
      for (const int source : {0, 7, 8, 20, 31}) {
        emu::set_order(order);
        launch("long", 1, 32, 0, [] { __shfl_sync(0xFFFFFFFF, 1000 + int(threadIdx.x), 0); });
        std::vector<int> got(lanes);
        launch("short", 1, unsigned(lanes), 0,
               [&] { got[threadIdx.x] = __shfl_sync(0xFFFFFFFF, int(threadIdx.x), source); });
        for (int t = 0; t < lanes; ++t)
          ASSERT_EQ(got[t], source < lanes ? source : t) << lanes << " lanes, from " << source;
      }
}

}  // namespace
}  // namespace gradus
