// Expandable segments: what they save where sizes grow, and that everything else is as without them.
#include <gtest/gtest.h>

#include <cstring>

#include "src/memory/device.h"
#include "tests/devices.h"
#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

constexpr int64_t kPage = 20 * kMiB;  // of the large pool; 2 MiB in the small one

struct Expandable : Fixture {
  explicit Expandable(int64_t capacity = int64_t(4) << 30) : Fixture(capacity) {
    allocator.set_expandable(true);
  }
};

// Steps of a loop whose batch grows: in each, ten activations are kept until its end.
void grow_from_step_to_step(Allocator& allocator) {
  for (int64_t step = 0; step < 8; ++step) {
    std::vector<Block*> live;
    for (int i = 0; i < 10; ++i)
      live.push_back(allocator.allocate((10 + 2 * step) * kMiB + i * 4096, Kind::Activation, "x"));
    for (Block* b : live) allocator.free(b);
  }
}

TEST(L05_Expandable, GrowingTensorsDoNotFragment) {
  Fixture plain;
  grow_from_step_to_step(plain.allocator);
  Expandable f;
  grow_from_step_to_step(f.allocator);
  const int64_t peak = f.meter.at_peak().allocated();
  EXPECT_EQ(plain.meter.at_peak()[Kind::Activation], f.meter.at_peak()[Kind::Activation]);
  EXPECT_GT(plain.meter.reserved(), 4 * peak) << "each step's segments are too small for the next step";
  EXPECT_GE(f.meter.reserved(), peak);
  EXPECT_LT(f.meter.reserved(), peak + kPage);
  EXPECT_EQ(f.allocator.segments().size(), 1u);
  EXPECT_EQ(f.meter.device_requests(), f.meter.reserved() / kPage) << "each page is asked for once";
  expect_consistent(f.allocator);
}

TEST(L05_Expandable, PoolsGrowByTheirPagesAndStaySeparate) {
  Expandable f;
  Block* small = f.get(1);
  EXPECT_EQ(f.meter.reserved(), 2 * kMiB);
  Block* large = f.get(kMiB + 1);
  EXPECT_EQ(f.meter.reserved(), 2 * kMiB + kPage);
  EXPECT_NE(small->segment, large->segment);
  Block* rest = f.get(kPage - large->size);  // exactly what is left of the page
  EXPECT_EQ(f.meter.device_requests(), 2);
  Block* two = f.get(kPage + 512);
  EXPECT_EQ(f.meter.device_requests(), 4);
  EXPECT_EQ(two->segment, rest->segment);
  EXPECT_EQ(two->offset, kPage);
  EXPECT_EQ(two->size, kPage + 512) << "the rest is split off, however small the request left it";
  expect_consistent(f.allocator);
  for (Block* b : {small, large, rest, two}) f.allocator.free(b);
}

TEST(L05_Expandable, TheRestIsSplitOffFrom512Bytes) {
  Expandable f;
  Block* b = f.get(kPage - 512);
  EXPECT_EQ(b->size, kPage - 512) << "without expandable segments the large pool leaves up to 1 MiB";
  ASSERT_NE(b->next, nullptr);
  EXPECT_TRUE(b->next->free && b->next->mapped);
  f.allocator.free(b);
}

TEST(L05_Expandable, WhatIsFreeAtTheEndIsUsedBeforeNewPages) {
  RecordProperty("exercise", "05.4");
  Expandable f;
  Block* a = f.get(15 * kMiB);  // 5 MiB of the page are left
  Block* b = f.get(25 * kMiB);  // these, and one page more
  EXPECT_EQ(b->offset, 15 * kMiB);
  EXPECT_EQ(f.meter.reserved(), 2 * kPage);
  f.allocator.free(a);
  f.allocator.free(b);
  Block* all = f.get(40 * kMiB);
  EXPECT_EQ(all->offset, 0) << "they merged, although they came in two requests";
  EXPECT_EQ(f.meter.reserved(), 2 * kPage);
  f.allocator.free(all);
}

TEST(L05_Expandable, AHoleHasRoomTogetherWithTheFreeBlockBeforeIt) {
  RecordProperty("exercise", "05.1");
  Expandable f;
  Block *a = f.get(30 * kMiB), *b = f.get(30 * kMiB), *c = f.get(20 * kMiB);
  f.allocator.free(b);
  f.allocator.empty_cache();  // 10 MiB of page 1 stay, beside what a has of it; page 2 is a hole
  EXPECT_EQ(f.meter.reserved(), 3 * kPage);
  Block* too_large = f.get(30 * kMiB + 1);
  EXPECT_EQ(too_large->offset, 80 * kMiB)
      << "1 byte more than the first hole and the 10 MiB before it: behind c";
  Block* fits = f.get(30 * kMiB);
  EXPECT_EQ(fits->offset, 30 * kMiB) << "in the hole of 20 MiB, with the 10 MiB free before it";
  EXPECT_EQ(f.meter.reserved(), 4 * kPage + 2 * kPage);
  Block* small = f.get(1);
  EXPECT_NE(small->segment, fits->segment) << "the small pool has holes of its own";
  expect_consistent(f.allocator);
  for (Block* block : {a, c, too_large, fits, small}) f.allocator.free(block);

  Expandable g;
  Block *x = g.get(3 * kPage), *y = g.get(kPage), *z = g.get(2 * kPage), *last = g.get(kPage);
  g.allocator.free(x);
  g.allocator.free(z);
  g.allocator.empty_cache();  // a hole of three pages, and one of two
  Block* first = g.get(2 * kPage);
  EXPECT_EQ(first->offset, 0) << "the first hole with room, not the smallest";
  for (Block* block : {y, last, first}) g.allocator.free(block);
}

TEST(L05_Expandable, EmptyCacheUnmapsEveryFreePageAndNoOther) {
  Expandable f;
  Block* blocks[5];  // a page and a half each: pages 1, 4 and 7, counted from 0, have two owners
  for (Block*& b : blocks) b = f.get(30 * kMiB);
  EXPECT_EQ(f.meter.reserved(), 8 * kPage);
  for (const int i : {0, 2}) f.allocator.free(blocks[i]);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 6 * kPage) << "page 0, and page 3";
  EXPECT_EQ(f.source->left, (int64_t(4) << 30) - 6 * kPage);
  expect_consistent(f.allocator);
  f.allocator.free(blocks[1]);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 4 * kPage) << "pages 0 to 3 are one hole; half of page 4 is in use";
  expect_consistent(f.allocator);
  Block* again = f.get(50 * kMiB);
  EXPECT_EQ(again->offset, 0) << "the first hole is filled first";
  EXPECT_EQ(f.meter.reserved(), 7 * kPage);
  expect_consistent(f.allocator);
  for (Block* b : {blocks[3], blocks[4], again}) f.allocator.free(b);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.reserved(), 0);
  EXPECT_TRUE(f.allocator.segments().empty()) << "without memory, the addresses go back too";
  EXPECT_EQ(f.source->addresses, 0);
  EXPECT_EQ(f.source->misused, 0);
}

TEST(L05_Expandable, WhatIsFreeBesideTheEmptiedPagesCanBeUsed) {
  Expandable f;
  Block *a = f.get(30 * kMiB), *b = f.get(60 * kMiB), *c = f.get(10 * kMiB);
  f.allocator.free(b);
  f.allocator.empty_cache();  // pages 2 and 3; of b, 10 MiB at each end stay
  EXPECT_EQ(f.meter.reserved(), 3 * kPage);
  Block *before = f.get(10 * kMiB), *behind = f.get(10 * kMiB);
  EXPECT_EQ(before->offset, 30 * kMiB);
  EXPECT_EQ(behind->offset, 80 * kMiB);
  EXPECT_EQ(f.meter.reserved(), 3 * kPage);
  expect_consistent(f.allocator);
  for (Block* block : {a, c, before, behind}) f.allocator.free(block);
}

TEST(L05_Expandable, TheBudgetBoundsPagesAndTakesThemFromTheCache) {
  Expandable f;
  f.allocator.set_budget(6 * kPage);
  std::vector<Block*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(f.get(kPage));
  EXPECT_THROW(f.get(kMiB), OutOfMemory);
  for (const int i : {0, 2, 4}) f.allocator.free(blocks[i]);
  Block* large = f.get(3 * kPage);  // three single pages are free: they become three at the end
  EXPECT_EQ(large->offset, 6 * kPage);
  EXPECT_EQ(f.meter.reserved(), 6 * kPage);
  EXPECT_EQ(f.meter.peak_reserved(), 6 * kPage);
  EXPECT_EQ(f.meter.device_requests(), 9);
  expect_consistent(f.allocator);
  for (Block* b : {blocks[1], blocks[3], blocks[5], large}) f.allocator.free(b);
}

TEST(L05_Expandable, AFullDeviceGivesBackWhatItGaveForNothing) {
  Expandable f(5 * kPage + 7 * kMiB);
  Block* a = f.get(2 * kPage);
  const int64_t requests = f.meter.device_requests();
  for (int i = 0; i < 100; ++i) ASSERT_THROW(f.get(4 * kPage), OutOfMemory);  // three of the four are there
  EXPECT_EQ(f.meter.reserved(), 2 * kPage);
  EXPECT_EQ(f.meter.device_requests(), requests);
  EXPECT_EQ(f.source->left, 3 * kPage + 7 * kMiB);
  expect_consistent(f.allocator);
  Block* b = f.get(3 * kPage);
  EXPECT_EQ(b->offset, 2 * kPage);
  f.allocator.free(a);
  f.allocator.free(b);
  for (const int64_t bytes : {int64_t(1) << 50, int64_t(1) << 61, INT64_MAX / 2, INT64_MAX})
    EXPECT_THROW(f.get(bytes), OutOfMemory) << bytes;
  EXPECT_EQ(f.source->misused, 0);
}

TEST(L05_Expandable, SwitchedOffItLeavesItsSegmentsInUse) {
  Expandable f;
  Block* a = f.get(15 * kMiB);
  f.allocator.set_expandable(false);
  Block* b = f.get(30 * kMiB);
  EXPECT_EQ(b->segment->bytes, 30 * kMiB) << "a segment of its own";
  Block* c = f.get(5 * kMiB);
  EXPECT_EQ(c->segment, a->segment) << "what is free there is taken";
  expect_consistent(f.allocator);
  for (Block* block : {a, b, c}) f.allocator.free(block);
}

using Decisions = std::vector<std::array<int64_t, 5>>;

Decisions decisions_on(const char* name) {
  Device device(name);
  Allocator& allocator = device.allocator();
  allocator.set_expandable(true);
  allocator.set_budget(130 * kMiB);
  std::vector<Block*> live;
  Decisions decisions;
  for (int64_t i = 0; i < 300; ++i) {
    try {
      live.push_back(allocator.allocate((i * 7919 % 263) * (i % 3 ? 150'000 : 3'000), Kind::Other, "x"));
      decisions.push_back({live.back()->segment->serial, live.back()->offset, live.back()->size, 0, 0});
    } catch (const OutOfMemory&) {
      decisions.push_back({-1});
    }
    decisions.back()[3] = device.meter().reserved();
    decisions.back()[4] = device.meter().device_requests();
    if (live.size() < 8) continue;
    Block*& freed = live[size_t(i * 31 % 8)];
    allocator.free(freed);
    freed = live.back();
    live.pop_back();
  }
  expect_consistent(allocator);
  for (Block* b : live) allocator.free(b);
  return decisions;
}

TEST(L05_Expandable, EveryDeviceDecidesTheSame) {
  const Decisions cpu = decisions_on("cpu");
  EXPECT_EQ(cpu, decisions_on("meta"));
  for (const char* name : devices_with_data()) EXPECT_EQ(cpu, decisions_on(name)) << name;
  int64_t refused = 0;
  for (const auto& d : cpu) refused += d[0] < 0;
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 100) << "the budget should press, not prevent";
}

TEST(L05_Expandable, ThePagesOfTheHostComeAndGo) {
  const std::unique_ptr<Source> host = host_source();
  char* const p = static_cast<char*>(host->reserve(int64_t(1) << 40));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (2 * kMiB), 0u);
  for (const int64_t at : {int64_t(0), kPage}) ASSERT_TRUE(host->map(p + at, kPage));
  std::memset(p, 1, size_t(2 * kPage));
  host->unmap(p, kPage);
  ASSERT_TRUE(host->map(p, kPage));
  EXPECT_EQ(p[0] + p[kPage - 1], 0) << "the memory went back; these pages are fresh";
  EXPECT_EQ(p[kPage] + p[2 * kPage - 1], 2) << "and the next one is untouched";
  host->unmap(p, kPage);
  EXPECT_DEATH(p[kPage - 1] = 1, "");
  host->unreserve(p, int64_t(1) << 40);
}

// What is written stays, at the same address, while the segment grows and while pages beside it go.
TEST(L05_Expandable, DataSurviveGrowthAndTheEmptyingOfTheCache) {
  for (const char* name : devices_with_data()) {
    Device device(name);
    Allocator& allocator = device.allocator();
    allocator.set_expandable(true);
    std::vector<Block*> blocks;
    std::vector<char*> addresses;
    for (int i = 0; i < 9; ++i) {
      const std::string written(size_t(7 * kMiB), char('a' + i));
      blocks.push_back(allocator.allocate(7 * kMiB, Kind::Data, "x"));
      addresses.push_back(blocks.back()->data());
      device.copy_in(addresses.back(), written.data(), 7 * kMiB);
    }
    for (const int i : {0, 1, 2, 3, 4}) allocator.free(blocks[i]);
    allocator.empty_cache();
    EXPECT_EQ(device.meter().reserved(), 3 * kPage + 2 * kMiB)
        << "of four pages the first is free; 2 MiB are the scalars'";
    for (const int i : {0, 1, 2, 3, 4}) blocks[i] = allocator.allocate(7 * kMiB, Kind::Data, "y");
    for (int i = 5; i < 9; ++i) {
      EXPECT_EQ(blocks[i]->data(), addresses[i]) << name;
      std::string read(size_t(7 * kMiB), ' ');
      device.copy_out(read.data(), addresses[i], 7 * kMiB);
      EXPECT_TRUE(read == std::string(read.size(), char('a' + i))) << name << ", block " << i;
    }
    for (Block* b : blocks) allocator.free(b);
  }
}

}  // namespace
}  // namespace gradus
