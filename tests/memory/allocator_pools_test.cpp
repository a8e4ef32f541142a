// Private pools: repeated requests get the same addresses, whatever is allocated outside in between.
#include <gtest/gtest.h>

#include "src/core/rng.h"
#include "tests/memory/allocator_fixture.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Addresses = std::vector<char*>;

// A sequence of requests, drawn from a seed; blocks that are left at its end are freed.
Addresses work(Fixture& f, uint64_t seed) {
  Rng rng(seed, 0);
  std::vector<Block*> alive;
  Addresses addresses;
  for (int i = 0; i < 60; ++i) {
    if (!alive.empty() && rng.below(3) == 0) {
      const size_t at = rng.below(alive.size());
      f.allocator.free(alive[at]);
      alive.erase(alive.begin() + ptrdiff_t(at));
      continue;
    }
    const int64_t most = std::array<int64_t, 4>{2'000, 900'000, 3 * kMiB, 15 * kMiB}[rng.below(4)];
    alive.push_back(f.get(int64_t(rng.below(uint64_t(most)))));
    addresses.push_back(alive.back()->data());
  }
  for (Block* b : alive) f.allocator.free(b);
  return addresses;
}

TEST(L16_AllocatorPools, TheSameRequestsFindTheSameAddresses) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Fixture f;
    f.allocator.set_expandable(seed % 2 == 1);
    const int64_t pools[] = {f.allocator.begin_pool(), f.allocator.begin_pool()};
    const auto in_pool = [&](int i) {
      const int64_t before = f.allocator.use_pool(pools[i]);
      EXPECT_EQ(before, 0);
      const Addresses addresses = work(f, 2 * seed + uint64_t(i));
      EXPECT_EQ(f.allocator.use_pool(before), pools[i]);
      return addresses;
    };
    const Addresses first = in_pool(0), other = in_pool(1);
    std::vector<Block*> alive;
    for (int again = 0; again < 3; ++again) {
      work(f, 1000 + seed);
      alive.push_back(f.get(int64_t(again) * 3'000'000 + 100));
      f.allocator.empty_cache();
      EXPECT_EQ(in_pool(0), first) << seed;
      EXPECT_EQ(in_pool(1), other) << seed;
    }
    for (Block* b : alive) f.allocator.free(b);
  }
}

TEST(L16_AllocatorPools, NobodyElseIsServedFromThem) {
  Fixture f;
  const int64_t pool = f.allocator.begin_pool();
  f.allocator.use_pool(pool);
  Block* mine = f.get(1000);
  f.allocator.free(f.get(1000));
  f.allocator.use_pool(0);
  Block* other = f.get(1000);
  EXPECT_NE(other->segment, mine->segment);
  EXPECT_EQ(mine->segment->pool, pool);
  EXPECT_EQ(other->segment->pool, 0);
  f.allocator.free(mine);  // freed outside the pool, but its memory stays in the pool
  Block *small = f.get(1000), *more = f.get(kMiB);
  EXPECT_EQ(small->segment, other->segment);
  EXPECT_EQ(more->segment, other->segment);
  f.allocator.free(small);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 4 * kMiB) << "the pool's segment stays";
  f.allocator.free(other), f.allocator.free(more);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 2 * kMiB);
  f.allocator.end_pool(pool);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 0);
}

TEST(L16_AllocatorPools, WhatIsInUseOutlivesItsPool) {
  Fixture f;
  const int64_t pool = f.allocator.begin_pool();
  f.allocator.use_pool(pool);
  Block* b = f.get(1000);
  b->data()[999] = 7;
  f.allocator.use_pool(0);
  f.allocator.end_pool(pool);
  f.allocator.empty_cache();
  EXPECT_EQ(b->data()[999], 7);
  Block* neighbour = f.get(1000);
  EXPECT_EQ(neighbour->segment, b->segment) << "the segment is now in the common pool";
  f.allocator.free(b), f.allocator.free(neighbour);
  EXPECT_NE(f.allocator.begin_pool(), pool);
}  // the allocator ends the last pool

TEST(L16_AllocatorPools, TheFirstFreeBlockThatFitsIsTakenAndSplitAsElsewhere) {
  Fixture f;
  const int64_t pool = f.allocator.begin_pool();
  f.allocator.use_pool(pool);
  Block *a = f.get(4096), *b = f.get(512), *c = f.get(1024), *d = f.get(512);
  char* const first = a->data();
  f.allocator.free(a), f.allocator.free(c);
  Block* e = f.get(1000);  // c would be the best fit
  EXPECT_EQ(e->data(), first);
  Block* large = f.get(12 * kMiB - 700 * 1024);
  EXPECT_EQ(large->size, 12 * kMiB) << "the remainder is too small to be split off";
  for (Block* x : {b, d, e, large}) f.allocator.free(x);
  f.allocator.use_pool(0);
}

TEST(L16_AllocatorPools, EachEndsAloneAndLargeBlocksGoToTheCommonPool) {
  Fixture f;
  const int64_t a = f.allocator.begin_pool(), b = f.allocator.begin_pool();
  f.allocator.use_pool(b);
  Block* of_b = f.get(1000);
  f.allocator.use_pool(a);
  Block *kept = f.get(3 * kMiB), *freed = f.get(3 * kMiB);
  f.allocator.free(freed);
  f.allocator.end_pool(a);  // it is in use; after this the common pool is
  EXPECT_EQ(f.allocator.pool(), 0);
  EXPECT_EQ(of_b->segment->pool, b);
  Block* more = f.get(3 * kMiB);
  EXPECT_EQ(more->segment, kept->segment);
  for (Block* x : {of_b, kept, more}) f.allocator.free(x);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 2 * kMiB) << "only the segment of pool b stays";
  EXPECT_EQ(refusal([&] { f.allocator.use_pool(a); }),
            "allocator: there is no private pool " + std::to_string(a) + ", or it has ended");
}

TEST(L16_AllocatorPools, AllGoesBackWithTheAllocator) {
  struct Last : SmallDevice {
    Last(int64_t& at_the_end) : SmallDevice(100 * kMiB), at_the_end(at_the_end) {}
    ~Last() override { at_the_end = left; }
    int64_t& at_the_end;
  };
  int64_t left = 0;
  {
    Meter meter;
    Allocator allocator(std::make_unique<Last>(left), meter);
    allocator.use_pool(allocator.begin_pool());
    allocator.free(allocator.allocate(1000, Kind::Other, "x"));
    allocator.free(allocator.allocate(5 * kMiB, Kind::Other, "x"));
  }
  EXPECT_EQ(left, 100 * kMiB);
}

TEST(L16_AllocatorPools, OthersAreAskedForRoomToo) {
  Fixture f(2 * kMiB);
  Block* only = f.get(1000);
  f.allocator.make_room.emplace_back([&] {
    if (only) f.allocator.free(std::exchange(only, nullptr));
    return only == nullptr;
  });
  f.allocator.use_pool(f.allocator.begin_pool());
  f.allocator.free(f.get(1000));
}

TEST(L16_AllocatorPools, OutOfMemorySaysWhatTheyHold) {
  Fixture f(60 * kMiB);
  const int64_t pool = f.allocator.begin_pool();
  f.allocator.use_pool(pool);
  f.allocator.free(f.get(40 * kMiB));
  f.allocator.use_pool(0);
  const std::string text = refusal([&] { f.get(32 * kMiB); });
  EXPECT_NE(text.find("the largest free piece is 0 B, and 40.0 MiB are in private pools"), std::string::npos)
      << text;
}

TEST(L16_AllocatorPools, APoolIsGivenWhatOthersHaveCached) {
  Fixture f(40 * kMiB);
  f.allocator.free(f.get(30 * kMiB));
  const int64_t pool = f.allocator.begin_pool();
  f.allocator.use_pool(pool);
  Block* b = f.get(36 * kMiB);
  f.allocator.free(b);
  EXPECT_THROW(f.get(38 * kMiB), OutOfMemory) << "the segments of the pool stay";
  f.allocator.use_pool(0);
  EXPECT_THROW(f.get(30 * kMiB), OutOfMemory);
  f.allocator.end_pool(pool);
  f.allocator.free(f.get(38 * kMiB));
}

}  // namespace
}  // namespace gradus
