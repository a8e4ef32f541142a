// emu itself: GPU threads that wait for each other, and the mistakes that emu finds, each in a small kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/kernels/emu_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// The message of the launch if it fails; "" if it does not.
template <class Body>
std::string refusal_of(const char* name, dim3 grid, dim3 block, int64_t shared_bytes, const Body& body) {
  return refusal([&] { launch(name, grid, block, shared_bytes, body); });
}
void expect_says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
}

using L01_Emu = EmuTest;

TEST_F(L01_Emu, EveryThreadRunsOnceAndKnowsItsPlace) {
  const dim3 grid(3, 2, 2), block(5, 3, 4);
  for (const Order order : kOrders) {
    emu::set_order(order);
    std::vector<int> count(3 * 2 * 2 * 5 * 3 * 4);
    launch("place", grid, block, 0, [&] {
      const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      ++count[b * 60 + t];
    });
    for (const int c : count) ASSERT_EQ(c, 1);
  }
}

TEST_F(L01_Emu, EveryBlockRunsOnceWhateverTheirNumber) {
  for (const Order order : kOrders)
    for (const int blocks :
         {1, 2, 3, 4, 5, 6, 7, 60, 7919, 2 * 7919}) {  // 7919: the step of the shuffled order
      emu::set_order(order);
      std::vector<int> count(blocks);
      launch("once", unsigned(blocks), 1, 0, [&] { ++count[blockIdx.x]; });
      ASSERT_EQ(count, std::vector<int>(blocks, 1)) << blocks;
    }
}

__global__ void reverse(const float* x, float* y) {
  __shared__ float s[256];
  s[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 256 + threadIdx.x] = s[255 - threadIdx.x];
}
__global__ void reverse_without_barrier(const float* x, float* y) {
  __shared__ float s[256];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[255 - threadIdx.x];
}

TEST_F(L01_Emu, ABarrierMakesSharedMemoryVisible) {
  std::vector<float> x(256 * 40), y(x.size());
  std::iota(x.begin(), x.end(), 0.0f);
  for (const Order order : kOrders) {
    emu::set_order(order);
    launch("reverse", 40, 256, 0, [&] { reverse(x.data(), y.data()); });
    for (int b = 0; b < 40; ++b)
      for (int i = 0; i < 256; ++i) ASSERT_EQ(y[b * 256 + i], x[b * 256 + 255 - i]);
  }
}

TEST_F(L01_Emu, AMissingBarrierGivesAnotherResultInAnotherOrder) {
  std::vector<std::vector<float>> results;
  for (const Order order : kOrders) {
    emu::set_order(order);
    std::vector<float> x(256), y(256);
    std::iota(x.begin(), x.end(), 1.0f);
    launch("reverse_without_barrier", 1, 256, 0, [&] { reverse_without_barrier(x.data(), y.data()); });
    for (float& v : x) v = -1;  // so that the next order does not find the right numbers in memory
    launch("again", 1, 256, 0, [&] { reverse_without_barrier(x.data(), std::vector<float>(256).data()); });
    results.push_back(y);
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
}

// In each round every warp reads a number that warp 0 wrote; no barrier keeps warp 0 from writing the number
// of the next round while others still read.
__global__ void overtaken(int* seen) {
  __shared__ int round;
  for (int r = 0; r < 4; ++r) {
    __syncwarp();
    if (threadIdx.x == 0) round = r;
    __syncthreads();
    seen[r * 256 + threadIdx.x] = round;
  }
}

TEST_F(L01_Emu, AWarpThatOvertakesOthersIsSeen) {
  std::vector<std::vector<int>> results;
  for (const Order order : kOrders) {
    emu::set_order(order);
    std::vector<int> seen(4 * 256);
    launch("overtaken", 1, 256, 0, [&] { overtaken(seen.data()); });
    results.push_back(seen);
  }
  EXPECT_NE(results[0], results[2]) << "no order lets a warp run ahead";
}

TEST_F(L01_Emu, ADivergentBarrierIsNamed) {
  float y[64];
  expect_says(refusal_of("half_waits", 1, 64, 0,
                         [&] {
                           if (threadIdx.x < 40) __syncthreads();
                           y[threadIdx.x] = 1;
                         }),
              {"half_waits", "block (0, 0, 0)", "divergent barrier", "thread (0, 0, 0)",
               "thread (40, 0, 0) has returned", "emu_test.cpp"});
  for (const Order order : kOrders)  // whether the other threads return earlier or later
    for (const bool first : {true, false}) {
      emu::set_order(order);
      const std::string said = refusal_of("some_wait", 1, 64, 0, [&] {
        if ((threadIdx.x < 40) == first) __syncthreads();
      });
      expect_says(said, {"some_wait", "divergent barrier", "has returned without reaching it"});
    }
  emu::set_order(Order::Forward);
  expect_says(refusal_of("two_barriers", dim3(1, 3), dim3(8, 2), 0,
                         [&] {
                           if (threadIdx.y == 0)
                             __syncthreads();
                           else
                             __syncthreads();
                         }),
              {"two_barriers", "divergent barrier", "(0, 1, 0)", "others of its block at line"});
  launch("fine", 1, 64, 0, [&] { __syncthreads(); });  // no trace of the failed launches is left
}

TEST_F(L01_Emu, ADeadlockInAWarpIsNamed) {
  expect_says(refusal_of("lane_missing", 1, 32, 0,
                         [&] {
                           if (threadIdx.x != 7) __shfl_sync(0xFFFFFFFF, 1.0f, 0);
                         }),
              {"lane_missing", "deadlock in a warp", "thread (7, 0, 0) has returned"});
  expect_says(refusal_of("not_in_mask", 1, 32, 0, [&] { __syncwarp(0x7FFFFFFF); }),
              {"thread (31, 0, 0)", "a mask that lacks its own lane"});
  expect_says(refusal_of("different_calls", 1, 32, 0,
                         [&] {
                           if (threadIdx.x < 16)
                             __shfl_sync(0xFFFFFFFF, 1.0f, 0);
                           else
                             __syncwarp();
                         }),
              {"divergent warp"});
  float sum = 0;  // and the next launch, on the same CPU thread, has whole warps again
  launch("whole", 1, 32, 0, [&] {
    const float of_last = __shfl_sync(0xFFFFFFFF, float(threadIdx.x), 31);
    if (threadIdx.x == 0) sum = of_last;
  });
  EXPECT_EQ(sum, 31);
}

// The first half of the lanes waits for all lanes, the second half only for itself: the second half goes on,
// the first half waits for ever.
TEST_F(L01_Emu, LanesOfOtherMasksHaveNotCome) {
  for (const Order order : kOrders) {
    emu::set_order(order);
    expect_says(refusal_of("two_masks", 1, 32, 0,
                           [&] { __shfl_sync(threadIdx.x < 16 ? 0xFFFFFFFF : 0xFFFF0000, 1.0f, 20); }),
                {"two_masks", "deadlock in a warp"});
  }
}

TEST_F(L01_Emu, EachBlockBeginsWithSharedMemoryOfNaN) {
  std::vector<float> first(3 * 64);
  launch("reads_first", 3, 64, 64 * 4, [&] {
    float* s = static_cast<float*>(emu::dynamic_shared());
    first[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x];
    s[threadIdx.x] = 1;
  });
  for (const float x : first) ASSERT_TRUE(std::isnan(x)) << x;
}

TEST_F(L01_Emu, SharedMemoryThatIsTooSmallIsNamed) {
  const auto write_64_floats = [] {
    static_cast<float*>(emu::dynamic_shared())[threadIdx.x] = float(threadIdx.x);
    __syncthreads();
  };
  launch("enough", 2, 64, 256, write_64_floats);
#ifdef __SANITIZE_ADDRESS__
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(launch("too_small", 1, 64, 252, write_64_floats), "heap-buffer-overflow");
#else
  expect_says(refusal_of("too_small", 1, 64, 252, write_64_floats),
              {"too_small", "block (0, 0, 0)", "252 bytes"});
#endif
}

TEST_F(L01_Emu, AccessesOutOfBoundsAreSeenByAddressSanitizer) {
#ifdef __SANITIZE_ADDRESS__
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::vector<float> x(100), y(100);
  EXPECT_DEATH(launch("write", 1, 128, 0, [&] { y[threadIdx.x] = 1; }), "heap-buffer-overflow");
  EXPECT_DEATH(launch("read", 1, 128, 0,
                      [&] {
                        if (x[threadIdx.x] > 1) y[0] = 1;
                      }),
               "heap-buffer-overflow");
#else
  GTEST_SKIP() << "make SANITIZE=1 test runs this";
#endif
}

TEST_F(L01_Emu, LaunchesThatAGpuRefusesAreRefused) {
  const auto nothing = [] {};
  expect_says(refusal_of("wide", 1, dim3(32, 33), 0, nothing), {"wide", "1056", "1024"});
  expect_says(refusal_of("deep", dim3(1, 65536), 1, 0, nothing), {"deep", "grid.y", "65535"});
  expect_says(refusal_of("deeper", dim3(1, 1, 65536), 1, 0, nothing), {"deeper", "grid.z", "65535"});
  expect_says(refusal_of("thick", 1, dim3(1, 1, 65), 0, nothing), {"thick", "block.z", "64"});
  EXPECT_EQ(refusal_of("thickest", 1, dim3(1, 1, 64), 0, nothing), "");
  expect_says(refusal_of("empty", dim3(0), 1, 0, nothing), {"empty", "grid.x"});
  expect_says(refusal_of("greedy", 1, 1, 300 << 10, nothing), {"greedy", "shared memory"});
}

TEST_F(L01_Emu, WhatAThreadThrowsArrives) {
  for (int i = 0; i < 100; ++i)
    expect_says(refusal_of("throws", 64, 64, 0,
                           [] {
                             __syncthreads();
                             if (blockIdx.x == 5 && threadIdx.x == 9) fail("block 5 has had enough");
                             __syncthreads();
                           }),
                {"block 5 has had enough"});
}

TEST_F(L01_Emu, AtomicsCountAcrossBlocks) {
  int sum = 0;
  launch("atomic", 1000, 64, 0, [&] { atomicAdd(&sum, 1); });
  EXPECT_EQ(sum, 64000);
}

}  // namespace
}  // namespace gradus
