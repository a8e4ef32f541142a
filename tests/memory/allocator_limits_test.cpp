// What the allocator does when memory ends, and with misuse: cache, budget, messages, impossible sizes.
#include <gtest/gtest.h>

#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

std::string message_of(Allocator& allocator, int64_t bytes, Kind kind, const char* name, const Shape& shape) {
  try {
    allocator.allocate(bytes, kind, name, shape);
  } catch (const OutOfMemory& e) {
    return e.what();
  }
  return "no OutOfMemory was thrown";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "missing: \"" << part << "\" in\n" << text;
}

TEST(L01_Allocator, EmptyCacheReturnsOnlyWhollyFreeSegments) {
  Fixture f;
  Block *small = f.get(100), *large = f.get(30 * kMiB);
  f.allocator.free(large);
  EXPECT_EQ(f.meter.reserved(), 32 * kMiB);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 2 * kMiB);
  EXPECT_EQ(f.source->left, (int64_t(4) << 30) - 2 * kMiB);
  expect_consistent(f.allocator);
  f.allocator.free(small);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 0);
  EXPECT_EQ(f.meter.peak_reserved(), 32 * kMiB);
  EXPECT_EQ(f.meter.device_requests(), 2);
}

// A device that says at its end what it then had.
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

TEST(L01_Allocator, ARepeatedStepAsksTheDeviceForNothing) {
  Fixture f;
  int64_t after_first = 0;
  for (int step = 0; step < 5; ++step) {
    std::vector<Block*> blocks;
    for (const int64_t kib : {3, 700, 5000, 64, 12'000, 900}) blocks.push_back(f.get(kib << 10));
    for (Block* b : blocks) f.allocator.free(b);
    if (step == 0) after_first = f.meter.device_requests();
  }
  EXPECT_EQ(f.meter.device_requests(), after_first);
}

TEST(L01_Allocator, BudgetBoundsReservedAndFreesTheCacheFirst) {
  Fixture f;
  f.allocator.set_budget(40 * kMiB);
  f.allocator.free(f.get(30 * kMiB));
  Block* b = f.get(40 * kMiB);  // exactly the budget, once the cached 30 MiB are given back
  EXPECT_EQ(f.meter.reserved(), 40 * kMiB);
  EXPECT_THROW(f.get(1), OutOfMemory);
  f.allocator.set_budget(0);
  Block* c = f.get(1);
  f.allocator.free(b);
  f.allocator.free(c);
  EXPECT_THROW(f.allocator.set_budget(-1), Error);
}

TEST(L01_Allocator, AFullDeviceFreesTheCacheFirst) {
  Fixture f(41 * kMiB);
  f.allocator.free(f.get(30 * kMiB));
  Block* b = f.get(38 * kMiB);
  EXPECT_THROW(f.get(4 * kMiB), OutOfMemory);
  f.allocator.free(b);
}

TEST(L01_Allocator, OutOfMemorySaysEverything) {
  Fixture f;
  f.allocator.set_budget(64 * kMiB);
  std::vector<Block*> live;
  for (int i = 0; i < 12; ++i)
    live.push_back(f.allocator.allocate((i + 1) * 10'000, Kind::Weight, "weight " + std::to_string(i)));
  live.push_back(f.allocator.allocate(33'000'000, Kind::Activation, "logits", {8, 64, 256}));
  const std::string text =
      message_of(f.allocator, 50 * kMiB, Kind::Temporary, "attention scores", {8, 4, 64, 64});
  for (const char* part :
       {"attention scores", "[8,4,64,64]", "temporary", "52428800", "50.0 MiB", "budget 64.0 MiB",
        "reserved 34.0 MiB", "allocated", "rounding", "activation", "33,000,000", "780,000", "logits",
        "weight 11", "weight 3", "smaller batch", "--memory"})
    expect_contains(text, part);
  EXPECT_EQ(text.find("weight 2 "), std::string::npos) << "only the ten largest blocks:\n" << text;
  EXPECT_LT(text.find("logits"), text.find("weight 11")) << "largest first:\n" << text;
  for (Block* b : live) f.allocator.free(b);
}

TEST(L01_Allocator, AThousandFailuresChangeNothing) {
  Fixture f(64 * kMiB);
  Block *a = f.get(5 * kMiB), *b = f.get(777);
  EXPECT_THROW(f.get(80 * kMiB), OutOfMemory);
  const Usage before = f.meter.now(), peak = f.meter.at_peak();
  const int64_t reserved = f.meter.reserved(), requests = f.meter.device_requests();
  for (int i = 0; i < 1000; ++i) ASSERT_THROW(f.get(80 * kMiB), OutOfMemory);
  EXPECT_EQ(f.meter.now(), before);
  EXPECT_EQ(f.meter.at_peak(), peak);
  EXPECT_EQ(f.meter.reserved(), reserved);
  EXPECT_EQ(f.meter.device_requests(), requests);
  expect_consistent(f.allocator);
  Block* c = f.get(5 * kMiB);  // and it still works
  EXPECT_EQ(c->offset, 5 * kMiB);
  for (Block* block : {a, b, c}) f.allocator.free(block);
}

TEST(L01_Allocator, HugeAndImpossibleSizes) {
  Fixture f;
  for (const int64_t bytes :
       {INT64_MAX, INT64_MAX - 1, INT64_MAX - 511, INT64_MAX - (2 << 20), INT64_MAX / 2})
    EXPECT_THROW(f.get(bytes), OutOfMemory) << bytes;
  EXPECT_THROW(f.get(-1), Error);
  EXPECT_EQ(f.meter.now(), Usage{});
  Meter meter;
  Allocator host(host_source(), meter);
  EXPECT_THROW(host.allocate(int64_t(1) << 56, Kind::Other, "too much"), OutOfMemory);
}

TEST(L01_Allocator, ChangeKindMovesTheBytes) {
  Fixture f;
  Block* b = f.allocator.allocate(1000, Kind::Temporary, "y");
  f.allocator.change_kind(b, Kind::Activation);
  EXPECT_EQ(f.meter.now()[Kind::Temporary], 0);
  EXPECT_EQ(f.meter.now()[Kind::Activation], 1000);
  EXPECT_EQ(f.meter.now().rounding, 24);
  EXPECT_EQ(b->kind, Kind::Activation);
  f.allocator.free(b);
  EXPECT_EQ(f.meter.now(), Usage{});
}

TEST(L05_Expandable, MoreAddressesThanOneSegmentHasAreAnotherSegment) {
  Meter meter;
  Allocator allocator(meta_source(), meter);
  allocator.set_expandable(true);
  constexpr int64_t kTiB = int64_t(1) << 40;
  Block* a = allocator.allocate(kTiB / 4 * 3, Kind::Other, "a");
  Block* b = allocator.allocate(kTiB / 2, Kind::Other, "b");
  Block* c = allocator.allocate(kTiB / 8, Kind::Other, "c");
  Block* d = allocator.allocate(kTiB * 2, Kind::Other, "d");
  EXPECT_NE(b->segment, a->segment);
  EXPECT_EQ(c->segment, a->segment) << "the first that has room";
  EXPECT_EQ(allocator.segments().size(), 3u);
  expect_consistent(allocator);
  EXPECT_THROW(allocator.allocate(INT64_MAX / 2, Kind::Other, "impossible"), OutOfMemory);
  for (Block* block : {a, b, c, d}) allocator.free(block);
  allocator.empty_cache();
  EXPECT_EQ(meter.reserved(), 0);
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

using L01_AllocatorDeathTest = testing::Test;
TEST(L01_AllocatorDeathTest, ASecondFreeAbortsAndNamesTheBlock) {
  Fixture f;
  Block *a = f.get(100, "twice"), *b = f.get(100);
  f.allocator.free(a);
  EXPECT_DEATH(f.allocator.free(a), "freed twice: block \"twice\"");
  f.allocator.free(b);  // a merged into its neighbour and is gone as a block, yet the second free is seen
  EXPECT_DEATH(f.allocator.free(b), "freed twice");
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
