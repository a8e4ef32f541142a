// The allocator at its limits, the state that belongs to one allocator or block only, and misuse.
#include <gtest/gtest.h>

#include "tests/memory/allocator_fixture.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L01_Allocator, TheBudgetIsMetExactlyAndNotByOneByteLess) {
  for (const int64_t bytes : {kMiB, 5 * kMiB, 32 * kMiB}) {
    const int64_t segment = bytes == kMiB ? 2 * kMiB : bytes == 5 * kMiB ? 20 * kMiB : bytes;
    Fixture f;
    f.allocator.set_budget(segment - 1);
    EXPECT_THROW(f.get(bytes), OutOfMemory) << bytes;
    EXPECT_EQ(f.meter.device_requests(), 0) << "a request above the budget reached the device";
    f.allocator.set_budget(segment);
    EXPECT_EQ(f.allocator.budget(), segment);
    Block* b = f.get(bytes);
    EXPECT_EQ(f.meter.reserved(), segment);
    f.allocator.set_budget(segment / 2);  // existing segments stay and can be used
    f.allocator.free(b);
    b = f.get(bytes);
    EXPECT_EQ(f.meter.device_requests(), 1);
    EXPECT_THROW(f.get(64 * kMiB), OutOfMemory);
    f.allocator.free(b);
  }
}

// The cache is emptied only if nothing else helps; blocks in use keep their addresses and their accounting.
TEST(L01_Allocator, AFailedRequestEmptiesTheCacheAndChangesNothingElse) {
  Fixture f;
  f.allocator.set_budget(60 * kMiB);
  Block *small = f.get(1000), *large = f.get(11 * kMiB), *cached = f.get(30 * kMiB);
  f.allocator.free(cached);
  const Usage now = f.meter.now(), peak = f.meter.at_peak();
  Block* second = f.get(14 * kMiB);  // from the cache
  EXPECT_EQ(place_of(second), Place(2, 0));
  f.allocator.free(second);
  EXPECT_EQ(f.meter.reserved(), 44 * kMiB);
  EXPECT_THROW(f.allocator.allocate(47 * kMiB, Kind::Weight, "w"), OutOfMemory);  // 14 + 48 > 60
  EXPECT_EQ(f.meter.reserved(), 14 * kMiB) << "the cache has been emptied";
  EXPECT_EQ(f.meter.now(), now);
  EXPECT_EQ(f.meter.at_peak(), peak);
  EXPECT_EQ(f.meter.peak_reserved(), 44 * kMiB);
  EXPECT_EQ(f.meter.device_requests(), 3) << "failed requests must not count";
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
  EXPECT_EQ(place_of(first), Place(0, 0)) << "the free block is still in the pool";
  EXPECT_EQ(place_of(behind), Place(0, 8 * kMiB));
  Block* next = f.get(40 * kMiB);
  EXPECT_EQ(next->segment->serial, 2) << "a serial is used only once";
  for (Block* block : {b, first, behind, next}) f.allocator.free(block);
}

// A device that reports at its end how many bytes it had then.
struct WatchedDevice : SmallDevice {
  WatchedDevice(int64_t capacity, int64_t& left_at_end) : SmallDevice(capacity), at_end(left_at_end) {}
  ~WatchedDevice() override { at_end = left - addresses; }
  int64_t& at_end;
};
TEST(L01_Allocator, AtItsEndTheDeviceHasEverythingBack) {
  for (const bool expandable : {false, true}) {
    int64_t at_end = -1;
    Meter meter;
    {
      Allocator allocator(std::make_unique<WatchedDevice>(100 * kMiB, at_end), meter);
      allocator.set_expandable(expandable);
      for (const int64_t bytes : {int64_t(700), 3 * kMiB, 30 * kMiB})
        allocator.free(allocator.allocate(bytes, Kind::Weight, "w"));
      EXPECT_GT(meter.reserved(), 33 * kMiB);
    }
    EXPECT_EQ(at_end, 100 * kMiB);
    EXPECT_EQ(meter.reserved(), 0);
  }
}

TEST(L01_Allocator, TwoAllocatorsShareNothing) {
  Fixture f, g;
  f.allocator.set_budget(2 * kMiB);
  f.allocator.set_expandable(true);
  f.allocator.keep_history();
  Block *a = f.get(100), *b = g.get(30 * kMiB), *c = g.get(100);
  EXPECT_EQ(place_of(a), Place(0, 0));
  EXPECT_EQ(place_of(b), Place(0, 0)) << "each allocator counts its own segments";
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
  EXPECT_EQ(f.meter.at_peak()[Kind::Temporary], 1000) << "the kind at the time of the peak";
  f.allocator.free(b);
  EXPECT_EQ(f.allocator.history().back().kind, Kind::Gradient);
  EXPECT_EQ(f.meter.now(), Usage{});
}

TEST(L01_Allocator, ABlockHasNothingOfItsEarlierOwner) {
  Fixture f;
  f.allocator.keep_history();
  Block* block = f.allocator.allocate(1000, Kind::Weight, "first", {10, 25});
  f.allocator.free(block);
  block = f.allocator.allocate(900, Kind::Other, "");
  EXPECT_EQ(block->offset, 0);
  EXPECT_EQ(block->name, "");
  EXPECT_EQ(block->shape, Shape());
  EXPECT_EQ(block->kind, Kind::Other);
  EXPECT_EQ(block->requested, 900);
  const MemoryEvent& last = f.allocator.history().back();
  EXPECT_EQ(std::tuple(last.action, last.name, last.shape, last.kind, last.requested),
            std::tuple(Action::Alloc, std::string(), Shape(), Kind::Other, int64_t(900)));
  f.allocator.free(block);
}

// No device has this much memory, and sums of such sizes would overflow: also where 1 TiB of addresses is
// reserved, and on meta, which has all possible addresses.
TEST(L01_Allocator, ImpossibleSizesAreOutOfMemory) {
  for (const bool expandable : {false, true}) {
    Fixture f;
    Meter meter;
    Allocator meta(meta_source(), meter), host(host_source(), meter);
    for (Allocator* allocator : {&f.allocator, &meta, &host}) {
      allocator->set_expandable(expandable);
      for (const int64_t bytes : {INT64_MAX, INT64_MAX - 511, INT64_MAX - (2 << 20), INT64_MAX / 2,
                                  int64_t(1) << 56, (int64_t(1) << 47) + 1})
        EXPECT_THROW(allocator->allocate(bytes, Kind::Other, "x"), OutOfMemory) << bytes;
      EXPECT_EQ(allocator->meter().reserved(), 0);
    }
    if (!expandable) meta.free(meta.allocate(int64_t(1) << 47, Kind::Other, "x"));
  }
}

TEST(L01_Allocator, MisuseIsRefusedAndChangesNothing) {
  Fixture f;
  f.allocator.keep_history();
  Block *freed = f.get(100, "gone"), *held = f.get(100);
  f.allocator.free(freed);
  const Usage before = f.meter.now();
  const size_t events = f.allocator.history().size();
  expect_refused("\"gone\"", [&] { f.allocator.change_kind(freed, Kind::Weight); });
  expect_refused("a budget of -1 bytes", [&] { f.allocator.set_budget(-1); });
  expect_refused("tokens asks for -1 bytes", [&] {
    try {
      f.allocator.allocate(-1, Kind::Data, "tokens");
    } catch (const OutOfMemory&) {
      ADD_FAILURE() << "a negative size must not be reported as out of memory";
    }
  });
  EXPECT_EQ(f.meter.now(), before);
  EXPECT_EQ(f.allocator.history().size(), events);
  f.allocator.free(held);
}

using L01_AllocatorDeathTest = testing::Test;
TEST(L01_AllocatorDeathTest, ASecondFreeAbortsAndNamesTheBlock) {
  Fixture f;
  Block *a = f.get(100, "twice"), *b = f.get(100), *own = f.allocator.allocate(30 * kMiB, Kind::Weight, "w");
  f.allocator.free(a);
  EXPECT_DEATH(f.allocator.free(a), "freed twice: block \"twice\"");
  f.allocator.free(b);  // a was merged into its neighbour, but the second free is still noticed
  EXPECT_DEATH(f.allocator.free(b), "freed twice");
  f.allocator.free(own);
  f.allocator.empty_cache();  // the segment was released
  EXPECT_DEATH(f.allocator.free(own), "freed twice: block \"w\" .weight, 31457280 bytes");
}

TEST(L01_AllocatorDeathTest, ABlockThatOutlivesTheAllocatorIsNamed) {
  EXPECT_DEATH(
      {
        Fixture f;
        f.get(100, "forgotten");
      },
      "a tensor outlives its device.*\"forgotten\"");
}

}  // namespace
}  // namespace gradus
