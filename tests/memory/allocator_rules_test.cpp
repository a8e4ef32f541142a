// The allocator's rules one by one, each on both sides of its threshold; what a failed request leaves behind;
// and misuse.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/memory/allocator_fixture.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Place = std::pair<int64_t, int64_t>;  // segment serial, offset
Place place_of(const Block* b) { return {b->segment->serial, b->offset}; }

TEST(L01_Allocator, RoundsUpToMultiplesOf512) {
  for (const auto& [bytes, size] : {std::pair<int64_t, int64_t>(0, 512),
                                    {1, 512},
                                    {511, 512},
                                    {512, 512},
                                    {513, 1024},
                                    {1023, 1024},
                                    {1024, 1024},
                                    {1025, 1536},
                                    {65'535, 65'536},
                                    {65'537, 66'048},
                                    {3 * kMiB - 1, 3 * kMiB},
                                    {3 * kMiB, 3 * kMiB},
                                    {3 * kMiB + 1, 3 * kMiB + 512}}) {
    Fixture f;
    Block* b = f.get(bytes);
    EXPECT_EQ(b->size, size) << bytes;
    EXPECT_EQ(b->requested, bytes);
    EXPECT_EQ(f.meter.now().rounding, size - bytes) << bytes;
    f.allocator.free(b);
  }
}

TEST(L01_Allocator, SegmentsOnBothSidesOfEachThreshold) {
  for (const auto& [bytes, segment] : {std::pair<int64_t, int64_t>(kMiB - 512, 2 * kMiB),
                                       {kMiB, 2 * kMiB},
                                       {kMiB + 1, 20 * kMiB},
                                       {10 * kMiB - 512, 20 * kMiB},
                                       {10 * kMiB - 511, 10 * kMiB},
                                       {10 * kMiB, 10 * kMiB},
                                       {10 * kMiB + 1, 12 * kMiB},
                                       {12 * kMiB, 12 * kMiB},
                                       {12 * kMiB + 1, 14 * kMiB},
                                       {14 * kMiB - 1, 14 * kMiB},
                                       {99 * kMiB, 100 * kMiB}}) {
    Fixture f;
    Block* b = f.get(bytes);
    EXPECT_EQ(b->segment->bytes, segment) << bytes;
    EXPECT_EQ(b->segment->addresses, segment);
    EXPECT_EQ(b->segment->page, 0);
    EXPECT_EQ(b->segment->small, bytes <= kMiB) << bytes;
    EXPECT_EQ(f.source->left, (int64_t(4) << 30) - segment) << "the device was asked for so much";
    f.allocator.free(b);
  }
}

// What the small pool has is not for large requests, and the other way round, however much is free.
TEST(L01_Allocator, NeitherPoolTakesFromTheOther) {
  Fixture f;
  f.allocator.free(f.get(kMiB));  // 2 MiB free, small
  Block* large = f.get(kMiB + 1);
  EXPECT_EQ(place_of(large), Place(1, 0));
  Block* small = f.get(kMiB);
  EXPECT_EQ(place_of(small), Place(0, 0)) << "although the large pool has a free block too";
  Block* second = f.get(2 * kMiB);
  EXPECT_EQ(place_of(second), Place(1, kMiB + 512));
  expect_consistent(f.allocator);
  for (Block* b : {large, small, second}) f.allocator.free(b);
}

// Large blocks of one segment: left, right, or both neighbours free, or none.
TEST(L01_Allocator, MergesLeftRightAndBothInTheLargePool) {
  for (int free_neighbours = 0; free_neighbours < 4; ++free_neighbours) {
    Fixture f;
    Block *left = f.get(3 * kMiB), *middle = f.get(4 * kMiB), *right = f.get(5 * kMiB);
    Block* wall = f.get(8 * kMiB);  // what is left of the 20 MiB
    const bool with_left = free_neighbours & 1, with_right = free_neighbours & 2;
    if (with_left) f.allocator.free(left);
    if (with_right) f.allocator.free(right);
    f.allocator.free(middle);
    expect_consistent(f.allocator);
    const int64_t merged = (4 + (with_left ? 3 : 0) + (with_right ? 5 : 0)) * kMiB;
    Block* all = f.get(merged);
    EXPECT_EQ(place_of(all), Place(0, with_left ? 0 : 3 * kMiB)) << free_neighbours;
    EXPECT_EQ(all->size, merged);
    EXPECT_EQ(f.meter.device_requests(), 1);
    expect_consistent(f.allocator);
    if (!with_left) f.allocator.free(left);
    if (!with_right) f.allocator.free(right);
    for (Block* b : {all, wall}) f.allocator.free(b);
    EXPECT_EQ(f.allocator.segments().begin()->second.first->size, 20 * kMiB);
  }
}

// Segments whose addresses go down while their serials go up: a tie is decided by the serial.
struct Descending : SmallDevice {
  Descending() : SmallDevice(int64_t(4) << 30) {}
  void* acquire(int64_t bytes) override { return next -= bytes; }
  void release(void*, int64_t) noexcept override {}
  bool on_host() const override { return false; }
  char* next = reinterpret_cast<char*>(uintptr_t(1) << 61);
};

TEST(L01_Allocator, TiesAreDecidedBySerialAndOffsetNotByAddress) {
  Meter meter;
  Allocator allocator(std::make_unique<Descending>(), meter);
  std::vector<Block*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocator.allocate(12 * kMiB, Kind::Other, "x"));
  ASSERT_GT(blocks[0]->data(), blocks[3]->data());
  for (const int i : {2, 0, 3, 1}) allocator.free(blocks[i]);
  for (int i = 0; i < 4; ++i) {
    blocks[i] = allocator.allocate(12 * kMiB, Kind::Other, "x");
    EXPECT_EQ(place_of(blocks[i]), Place(i, 0));
  }
  // A later segment's smaller block is better than an earlier one's larger: size comes first.
  Block* best = allocator.allocate(14 * kMiB, Kind::Other, "x");
  Block* late = allocator.allocate(10 * kMiB, Kind::Other, "x");
  for (Block* b : {best, late}) allocator.free(b);
  Block* again = allocator.allocate(10 * kMiB, Kind::Other, "x");
  EXPECT_EQ(place_of(again), Place(5, 0));
  for (Block* b : blocks) allocator.free(b);
  allocator.free(again);
}

TEST(L01_Allocator, TheBudgetIsMetExactlyAndNotByOneByteLess) {
  for (const int64_t bytes : {kMiB, 5 * kMiB, 32 * kMiB}) {
    const int64_t segment = bytes == kMiB ? 2 * kMiB : bytes == 5 * kMiB ? 20 * kMiB : bytes;
    Fixture f;
    f.allocator.set_budget(segment - 1);
    EXPECT_THROW(f.get(bytes), OutOfMemory) << bytes;
    EXPECT_EQ(f.meter.device_requests(), 0) << "the device is not even asked";
    f.allocator.set_budget(segment);
    EXPECT_EQ(f.allocator.budget(), segment);
    Block* b = f.get(bytes);
    EXPECT_EQ(f.meter.reserved(), segment);
    f.allocator.set_budget(segment / 2);  // what is held stays, and can be used
    f.allocator.free(b);
    b = f.get(bytes);
    EXPECT_EQ(f.meter.device_requests(), 1);
    EXPECT_THROW(f.get(64 * kMiB), OutOfMemory);
    f.allocator.free(b);
  }
}

// The cache is given back only where nothing else helps; blocks in use keep their places and their accounts.
TEST(L01_Allocator, AFailedRequestEmptiesTheCacheAndChangesNothingElse) {
  Fixture f;
  f.allocator.set_budget(60 * kMiB);
  Block *small = f.get(1000), *large = f.get(11 * kMiB), *cached = f.get(30 * kMiB);
  f.allocator.free(cached);
  const Usage now = f.meter.now(), peak = f.meter.at_peak();
  Block* second = f.get(14 * kMiB);  // the cache has it
  EXPECT_EQ(place_of(second), Place(2, 0));
  f.allocator.free(second);
  EXPECT_EQ(f.meter.reserved(), 44 * kMiB);
  EXPECT_THROW(f.allocator.allocate(47 * kMiB, Kind::Weight, "w"), OutOfMemory);  // 14 + 48 > 60
  EXPECT_EQ(f.meter.reserved(), 14 * kMiB) << "the cache has been emptied";
  EXPECT_EQ(f.meter.now(), now);
  EXPECT_EQ(f.meter.at_peak(), peak);
  EXPECT_EQ(f.meter.peak_reserved(), 44 * kMiB);
  EXPECT_EQ(f.meter.device_requests(), 3) << "what was refused does not count";
  EXPECT_EQ(place_of(small), Place(0, 0));
  EXPECT_EQ(place_of(large), Place(1, 0));
  EXPECT_EQ(std::tuple(large->size, large->requested, large->name),
            std::tuple(12 * kMiB, 11 * kMiB, "block"));
  expect_consistent(f.allocator);
  Block* fits = f.get(46 * kMiB);  // 14 + 46 = 60
  EXPECT_EQ(f.meter.reserved(), 60 * kMiB);
  for (Block* b : {small, large, fits}) f.allocator.free(b);
}

TEST(L01_Allocator, EmptyCacheKeepsWhatIsFreeInSegmentsInUse) {
  Fixture f;
  Block *a = f.get(4 * kMiB), *b = f.get(4 * kMiB), *c = f.get(40 * kMiB);
  f.allocator.free(a);
  f.allocator.free(c);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 20 * kMiB);
  Block *first = f.get(4 * kMiB), *behind = f.get(12 * kMiB);
  EXPECT_EQ(place_of(first), Place(0, 0)) << "still in the pool";
  EXPECT_EQ(place_of(behind), Place(0, 8 * kMiB));
  Block* next = f.get(40 * kMiB);
  EXPECT_EQ(next->segment->serial, 2) << "serials are never given twice";
  for (Block* block : {b, first, behind, next}) f.allocator.free(block);
}

TEST(L01_Allocator, TwoAllocatorsShareNothing) {
  Fixture f, g;
  f.allocator.set_budget(2 * kMiB);
  f.allocator.set_expandable(true);
  f.allocator.keep_history();
  Block *a = f.get(100), *b = g.get(30 * kMiB), *c = g.get(100);
  EXPECT_EQ(place_of(a), Place(0, 0));
  EXPECT_EQ(place_of(b), Place(0, 0)) << "each counts its own segments";
  EXPECT_EQ(f.meter.reserved(), 2 * kMiB);
  EXPECT_EQ(g.meter.reserved(), 32 * kMiB);
  EXPECT_EQ(c->segment->page, 0);
  EXPECT_EQ(g.allocator.budget(), 0);
  EXPECT_EQ(f.allocator.history().size(), 2u);
  EXPECT_THROW(g.allocator.history(), Error);
  f.allocator.free(a);
  EXPECT_EQ(g.meter.now().allocated(), 30 * kMiB + 512);
  for (Block* block : {b, c}) g.allocator.free(block);
}

TEST(L01_Allocator, KindsChangeTwiceAndToTheSame) {
  Fixture f;
  f.allocator.keep_history();
  Block* b = f.allocator.allocate(1000, Kind::Temporary, "y");
  for (const Kind kind : {Kind::Activation, Kind::Activation, Kind::Gradient}) {
    f.allocator.change_kind(b, kind);
    Usage expected;
    expected.by_kind[int(kind)] = 1000;
    expected.rounding = 24;
    EXPECT_EQ(f.meter.now(), expected);
    EXPECT_EQ(f.allocator.history().back().kind, kind);
  }
  EXPECT_EQ(f.meter.at_peak()[Kind::Temporary], 1000) << "as it was at the peak";
  f.allocator.free(b);
  EXPECT_EQ(f.allocator.history().back().kind, Kind::Gradient);
  EXPECT_EQ(f.meter.now(), Usage{});
}

TEST(L01_Allocator, TheKindOfAFreedBlockCannotChange) {
  Fixture f;
  f.allocator.keep_history();
  Block *freed = f.get(100, "gone"), *held = f.get(100);
  f.allocator.free(freed);
  const Usage before = f.meter.now();
  const size_t events = f.allocator.history().size();
  expect_refused("\"gone\"", [&] { f.allocator.change_kind(freed, Kind::Weight); });
  EXPECT_EQ(f.meter.now(), before);
  EXPECT_EQ(f.allocator.history().size(), events);
  f.allocator.free(held);
}

// No device has so much, so its sum could not be counted either.
TEST(L01_Allocator, TheMetaDeviceRefusesImpossibleSizes) {
  Meter meter;
  Allocator allocator(meta_source(), meter);
  for (const int64_t bytes : {INT64_MAX / 2, (int64_t(1) << 47) + 1})
    EXPECT_THROW(allocator.allocate(bytes, Kind::Other, "x"), OutOfMemory) << bytes;
  EXPECT_EQ(meter.reserved(), 0);
  allocator.free(allocator.allocate(int64_t(1) << 47, Kind::Other, "x"));
}

TEST(L01_Allocator, RefusalsNameTheRequestAndChangeNothing) {
  Fixture f;
  try {
    f.allocator.allocate(-1, Kind::Data, "tokens");
    ADD_FAILURE() << "a negative size was accepted";
  } catch (const OutOfMemory& e) {
    ADD_FAILURE() << "a negative size is no lack of memory: " << e.what();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("tokens asks for -1 bytes"), std::string::npos) << e.what();
  }
  EXPECT_EQ(f.meter.device_requests(), 0);
}

using L01_AllocatorDeathTest = testing::Test;
TEST(L01_AllocatorDeathTest, ASecondFreeIsSeenAfterTheSegmentWentBack) {
  Fixture f;
  Block* b = f.allocator.allocate(30 * kMiB, Kind::Weight, "w");
  f.allocator.free(b);
  f.allocator.empty_cache();
  EXPECT_DEATH(f.allocator.free(b), "freed twice: block \"w\" .weight, 31457280 bytes");
}

}  // namespace
}  // namespace gradus
