// Expandable segments: the memory that they save where sizes grow; which pages are mapped and unmapped; and
// the state after a device fails in the middle of a request.
#include <gtest/gtest.h>

#include "tests/memory/allocator_fixture.h"
#include "tests/mistakes.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kSmallPage = 2 * kMiB, kPage = 20 * kMiB;

// A device that logs its pages by index, and whose map() fails after `maps_left` more calls.
struct Recorder : SmallDevice {
  Recorder() : SmallDevice(int64_t(4) << 30) {}
  void* reserve(int64_t bytes) override {
    if (no_addresses) return nullptr;
    void* const p = SmallDevice::reserve(bytes);
    log.push_back("reserve");
    if (!base) base = static_cast<char*>(p);
    return p;
  }
  void unreserve(void* p, int64_t bytes) noexcept override {
    log.push_back("unreserve");
    SmallDevice::unreserve(p, bytes);
  }
  bool map(void* page, int64_t bytes) override {
    const bool works = maps_left-- > 0 && SmallDevice::map(page, bytes);
    log.push_back((works ? "map " : "no ") + index(page, bytes));
    return works;
  }
  void unmap(void* page, int64_t bytes) noexcept override {
    log.push_back("unmap " + index(page, bytes));
    SmallDevice::unmap(page, bytes);
  }
  std::string index(void* page, int64_t bytes) const {
    return std::to_string((static_cast<char*>(page) - base) / bytes);
  }
  std::vector<std::string> taken_log() { return std::exchange(log, {}); }
  char* base = nullptr;
  int64_t maps_left = INT64_MAX;
  bool no_addresses = false;
  std::vector<std::string> log;
};
using Log = std::vector<std::string>;

struct Pages {
  Pages() { allocator.set_expandable(true); }
  Block* get(int64_t bytes) { return allocator.allocate(bytes, Kind::Other, "block", {bytes}); }
  Meter meter;
  Recorder* source = new Recorder;
  Allocator allocator{std::unique_ptr<Source>(source), meter};
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
  Pages f;
  grow_from_step_to_step(f.allocator);
  const int64_t peak = f.meter.at_peak().allocated();
  EXPECT_EQ(plain.meter.at_peak()[Kind::Activation], f.meter.at_peak()[Kind::Activation]);
  EXPECT_GT(plain.meter.reserved(), 4 * peak) << "each step's segments are too small for the next step";
  EXPECT_GE(f.meter.reserved(), peak);
  EXPECT_LT(f.meter.reserved(), peak + kPage);
  EXPECT_EQ(f.allocator.segments().size(), 1u);
  EXPECT_EQ(f.meter.device_requests(), f.meter.reserved() / kPage) << "each page is allocated once";
  expect_consistent(f.allocator);
}

TEST(L05_Expandable, WhatIsFreeAtTheEndIsUsedBeforeNewPages) {
  RecordProperty("exercise", "05.4");
  Pages f;
  Block* a = f.get(15 * kMiB);  // 5 MiB of the page are left
  Block* b = f.get(25 * kMiB);  // these 5 MiB, and one new page
  EXPECT_EQ(b->offset, 15 * kMiB);
  EXPECT_EQ(f.meter.reserved(), 2 * kPage);
  f.allocator.free(a);
  f.allocator.free(b);
  Block* all = f.get(40 * kMiB);
  EXPECT_EQ(all->offset, 0) << "the two blocks merged, although they came from two device allocations";
  EXPECT_EQ(f.meter.reserved(), 2 * kPage);
  f.allocator.free(all);
}

TEST(L05_Expandable, AHoleHasRoomTogetherWithTheFreeBlockBeforeIt) {
  RecordProperty("exercise", "05.3");
  Pages f;
  Block *a = f.get(30 * kMiB), *b = f.get(30 * kMiB), *c = f.get(20 * kMiB);
  f.allocator.free(b);
  f.allocator.empty_cache();  // 10 MiB of page 1 stay mapped, next to the end of a; page 2 is a hole
  EXPECT_EQ(f.meter.reserved(), 3 * kPage);
  Block* too_large = f.get(30 * kMiB + 1);
  EXPECT_EQ(too_large->offset, 80 * kMiB)
      << "1 byte more than the first hole and the 10 MiB before it, so it belongs behind c";
  Block* fits = f.get(30 * kMiB);
  EXPECT_EQ(fits->offset, 30 * kMiB) << "in the hole of 20 MiB, with the 10 MiB free before it"
                                     << usual_mistake({{fits->offset > too_large->offset,
                                                        "the free block before the hole is not counted"}});
  EXPECT_EQ(f.meter.reserved(), 4 * kPage + 2 * kPage);
  Block* small = f.get(1);
  EXPECT_NE(small->segment, fits->segment) << "the small pool has its own holes";
  expect_consistent(f.allocator);
  for (Block* block : {a, c, too_large, fits, small}) f.allocator.free(block);

  Pages g;
  Block *x = g.get(3 * kPage), *y = g.get(kPage), *z = g.get(2 * kPage), *last = g.get(kPage);
  g.allocator.free(x);
  g.allocator.free(z);
  g.allocator.empty_cache();  // a hole of three pages, and one of two
  Block* first = g.get(2 * kPage);
  EXPECT_EQ(first->offset, 0) << usual_mistake(
      {{first->offset == 4 * kPage,
        "the smallest or the last hole with room is taken, but it should be the first"}});
  for (Block* block : {y, last, first}) g.allocator.free(block);
}

TEST(L05_Expandable, EachPageIsMappedOnceInOrderAndUnmappedAlone) {
  Pages f;
  Block* a = f.get(kPage + 1);
  EXPECT_EQ(f.source->taken_log(), (Log{"reserve", "map 0", "map 1"}));
  EXPECT_EQ(a->segment->page, kPage);
  EXPECT_EQ(a->segment->bytes, 2 * kPage);
  EXPECT_EQ(a->segment->addresses % kPage, 0);
  Block* b = f.get(kPage - 512);  // the rest of page 1
  EXPECT_EQ(f.source->taken_log(), Log{});
  Block* c = f.get(2 * kPage);
  EXPECT_EQ(f.source->taken_log(), (Log{"map 2", "map 3"}));
  f.allocator.free(a);
  f.allocator.empty_cache();  // page 1 is also used by b
  EXPECT_EQ(f.source->taken_log(), Log{"unmap 0"});
  EXPECT_EQ(f.meter.reserved(), 3 * kPage);
  f.allocator.empty_cache();
  EXPECT_EQ(f.source->taken_log(), Log{}) << "an unmapped page must not be unmapped again";
  expect_consistent(f.allocator);
  f.allocator.free(b);
  f.allocator.free(c);
  f.allocator.empty_cache();
  EXPECT_EQ(f.source->taken_log(), (Log{"unmap 1", "unmap 2", "unmap 3", "unreserve"}));
  EXPECT_EQ(f.meter.device_requests(), 4);
}

TEST(L05_Expandable, AMapThatFailsAtTheSecondPageLeavesNothing) {
  Pages f;
  f.source->maps_left = 1;
  EXPECT_THROW(f.get(3 * kPage), OutOfMemory);
  EXPECT_EQ(f.meter.reserved(), 0);
  EXPECT_EQ(f.meter.peak_reserved(), 0);
  EXPECT_EQ(f.meter.device_requests(), 0);
  EXPECT_TRUE(f.source->pages.empty());
  EXPECT_EQ(f.source->addresses, 0) << "addresses of a wholly free segment were not released";
  EXPECT_TRUE(f.allocator.segments().empty());

  f.source->maps_left = INT64_MAX;
  Block* held = f.get(kPage + kMiB);  // 19 MiB of page 1 are free
  f.source->taken_log();
  f.source->maps_left = 1;
  EXPECT_THROW(f.get(3 * kPage), OutOfMemory);
  EXPECT_EQ(f.source->taken_log(), (Log{"map 2", "no 3", "unmap 2", "no 2"}))
      << "the allocator tries twice: before and after it empties the cache";
  EXPECT_EQ(f.meter.reserved(), 2 * kPage);
  EXPECT_EQ(f.source->misused, 0);
  expect_consistent(f.allocator);
  Block* free_still = f.get(19 * kMiB);
  EXPECT_EQ(free_still->offset, kPage + kMiB) << "the free block must survive the failure";

  // When the device has memory again, the allocator continues.
  f.source->maps_left = 1;
  EXPECT_THROW(f.get(2 * kPage), OutOfMemory);
  f.source->maps_left = INT64_MAX;
  Block* after = f.get(2 * kPage);
  EXPECT_EQ(after->offset, 2 * kPage);
  EXPECT_EQ(f.meter.device_requests(), 4);
  for (Block* b : {held, free_still, after}) f.allocator.free(b);
}

TEST(L05_Expandable, ADeviceWithoutAddressesHasNoMemory) {
  Pages f;
  f.source->no_addresses = true;
  EXPECT_THROW(f.get(kPage), OutOfMemory);
  EXPECT_TRUE(f.allocator.segments().empty());
  EXPECT_EQ(f.source->taken_log(), Log{}) << "nothing can be mapped, and nothing is unmapped";
  f.source->no_addresses = false;
  f.allocator.free(f.get(kPage));
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
  EXPECT_EQ(c->segment, a->segment) << "the first segment that has room";
  EXPECT_EQ(allocator.segments().size(), 3u);
  expect_consistent(allocator);
  for (Block* block : {a, b, c, d}) allocator.free(block);
}

TEST(L05_Expandable, TheBudgetIsMetExactlyByPages) {
  Pages f;
  f.allocator.set_budget(2 * kPage - 1);
  EXPECT_THROW(f.get(kPage + 1), OutOfMemory);
  Block* a = f.get(kPage - kMiB);
  f.allocator.set_budget(2 * kPage);
  EXPECT_THROW(f.get(kPage + kMiB + 1), OutOfMemory) << "two pages and the last MiB of the first";
  Block* b = f.get(kPage + kMiB);
  EXPECT_EQ(b->offset, kPage - kMiB);
  EXPECT_EQ(f.meter.reserved(), 2 * kPage);
  EXPECT_EQ(f.meter.peak_reserved(), 2 * kPage);
  for (Block* block : {a, b}) f.allocator.free(block);
}

// A segment of one block keeps the large pool's rule for splitting; expandable ones split from 512 bytes on,
// whichever way new memory is allocated now.
TEST(L05_Expandable, WhereTheRestIsSplitOffDependsOnTheSegment) {
  Pages f;
  Block* pages = f.get(kPage);
  f.allocator.set_expandable(false);
  Block* plain = f.get(12 * kMiB);
  f.allocator.free(pages);
  f.allocator.free(plain);
  Block* in_pages = f.get(kPage - 512);
  EXPECT_EQ(in_pages->segment->page, kPage);
  EXPECT_EQ(in_pages->size, kPage - 512);
  f.allocator.set_expandable(true);
  Block* whole = f.get(11 * kMiB);
  EXPECT_EQ(whole->segment->page, 0) << "the best fit counts, in any segment";
  EXPECT_EQ(whole->size, 12 * kMiB);
  for (Block* b : {in_pages, whole}) f.allocator.free(b);
}

// The largest free piece is free memory: holes and blocks in use do not count.
TEST(L05_Expandable, TheMessageNamesTheLargestFreePiece) {
  Pages f;
  f.allocator.set_budget(4 * kPage + kSmallPage);
  Block *a = f.get(17 * kMiB), *b = f.get(30 * kMiB), *c = f.get(25 * kMiB), *small = f.get(1);
  f.allocator.free(b);  // of its 30 MiB, from 17 to 47, page 1 is unmapped: 3 and 7 MiB stay; behind c, 8
  const auto too_large = [&] { f.get(60 * kMiB); };
  expect_refused("budget 82.0 MiB, reserved 62.0 MiB, allocated 42.0 MiB; the largest free piece is 8.0 MiB",
                 too_large);
  Block* last = f.get(8 * kMiB);
  EXPECT_EQ(last->offset, 72 * kMiB);
  expect_refused("the largest free piece is 7.0 MiB", too_large);
  for (Block* block : {a, c, small, last}) f.allocator.free(block);
}

// The events of one kind, as (pages from base on, pages).
using Stretches = std::vector<std::pair<int64_t, int64_t>>;
Stretches stretches(const Pages& f, Action action, const Segment& segment) {
  const auto base = reinterpret_cast<int64_t>(segment.base);
  Stretches found;
  for (const MemoryEvent& e : f.allocator.history())
    if (e.action == action && e.address >= base && e.address < base + segment.addresses)
      found.push_back({(e.address - base) / segment.page, e.bytes / segment.page});
  return found;
}

TEST(L05_Expandable, EventsSayWhichPagesComeAndGo) {
  Pages f;
  f.allocator.keep_history();
  Block *a = f.get(30 * kMiB), *b = f.get(50 * kMiB);
  f.allocator.free(b);
  f.allocator.empty_cache();
  EXPECT_EQ(stretches(f, Action::SegmentMap, *a->segment), (Stretches{{0, 2}, {2, 2}}));
  EXPECT_EQ(stretches(f, Action::SegmentUnmap, *a->segment), (Stretches{{2, 2}}));
  f.allocator.free(a);
}

TEST(L05_Expandable, AHistoryThatBeginsLateSpeaksOfWholePages) {
  Pages f;
  Block *a = f.get(30 * kMiB), *b = f.get(50 * kMiB), *c = f.get(3 * kMiB), *small = f.get(7);
  f.allocator.free(b);
  f.allocator.empty_cache();  // pages 2 and 3
  f.allocator.keep_history();
  EXPECT_EQ(stretches(f, Action::SegmentMap, *a->segment), (Stretches{{0, 2}, {4, 1}}));
  EXPECT_EQ(stretches(f, Action::SegmentMap, *small->segment), (Stretches{{0, 1}}));
  EXPECT_EQ(f.allocator.history().size(), 6u) << "three runs of pages, three blocks";
  for (Block* block : {a, c, small}) f.allocator.free(block);
}

}  // namespace
}  // namespace gradus
