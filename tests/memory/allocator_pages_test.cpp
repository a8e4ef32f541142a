// Expandable segments page by page: what is mapped and unmapped where, in both pools, and what a device that
// fails in the middle leaves behind.
#include <gtest/gtest.h>

#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

constexpr int64_t kSmallPage = 2 * kMiB, kPage = 20 * kMiB;

// A device that writes down its pages, as indices, and refuses the map after `maps_left` more.
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

TEST(L05_Expandable, EachPageIsMappedOnceInOrderAndUnmappedAlone) {
  Pages f;
  Block* a = f.get(kPage + 1);
  EXPECT_EQ(f.source->taken_log(), (Log{"reserve", "map 0", "map 1"}));
  EXPECT_EQ(a->segment->page, kPage);
  EXPECT_EQ(a->segment->bytes, 2 * kPage);
  EXPECT_EQ(a->segment->addresses % kPage, 0);
  Block* b = f.get(kPage - 512);  // what is left
  EXPECT_EQ(f.source->taken_log(), Log{});
  Block* c = f.get(2 * kPage);
  EXPECT_EQ(f.source->taken_log(), (Log{"map 2", "map 3"}));
  f.allocator.free(a);
  f.allocator.empty_cache();  // page 1 is b's too
  EXPECT_EQ(f.source->taken_log(), Log{"unmap 0"});
  EXPECT_EQ(f.meter.reserved(), 3 * kPage);
  f.allocator.empty_cache();
  EXPECT_EQ(f.source->taken_log(), Log{}) << "what is gone does not go again";
  expect_consistent(f.allocator);
  f.allocator.free(b);
  f.allocator.free(c);
  f.allocator.empty_cache();
  EXPECT_EQ(f.source->taken_log(), (Log{"unmap 1", "unmap 2", "unmap 3", "unreserve"}));
  EXPECT_EQ(f.meter.device_requests(), 4);
}

TEST(L05_Expandable, TheSmallPoolGrowsByTwoMebibytes) {
  Pages f;
  Block *a = f.get(kMiB), *b = f.get(kMiB - 512);
  EXPECT_EQ(f.source->taken_log(), (Log{"reserve", "map 0"}));
  EXPECT_EQ(a->segment->page, kSmallPage);
  EXPECT_TRUE(a->segment->small);
  Block* tiny = f.get(512);  // the last 512 bytes
  EXPECT_EQ(tiny->offset, kSmallPage - 512);
  EXPECT_EQ(f.source->taken_log(), Log{});
  Block* c = f.get(1);
  EXPECT_EQ(c->offset, kSmallPage);
  EXPECT_EQ(f.source->taken_log(), Log{"map 1"});
  f.allocator.free(a);
  f.allocator.free(c);
  f.allocator.empty_cache();
  EXPECT_EQ(f.source->taken_log(), Log{"unmap 1"});
  expect_consistent(f.allocator);
  for (Block* block : {b, tiny}) f.allocator.free(block);
}

// Both pools have free memory, and neither takes the other's, nor its holes.
TEST(L05_Expandable, ThePoolsDoNotMix) {
  Pages f;
  f.allocator.free(f.get(kMiB));
  f.allocator.free(f.get(5 * kMiB));
  f.source->taken_log();
  Block *small = f.get(kMiB), *large = f.get(kMiB + 1);
  EXPECT_EQ(f.source->taken_log(), Log{});
  EXPECT_TRUE(small->segment->small);
  EXPECT_FALSE(large->segment->small);
  EXPECT_EQ(small->segment->serial, 0);
  EXPECT_EQ(large->segment->serial, 1);
  Block* more = f.get(kPage);
  EXPECT_EQ(more->segment, large->segment) << "the first hole of all belongs to the small pool";
  EXPECT_EQ(f.meter.reserved(), kSmallPage + 2 * kPage);
  for (Block* b : {small, large, more}) f.allocator.free(b);
}

TEST(L05_Expandable, AMapThatFailsAtTheSecondPageLeavesNothing) {
  Pages f;
  f.source->maps_left = 1;
  EXPECT_THROW(f.get(3 * kPage), OutOfMemory);
  EXPECT_EQ(f.meter.reserved(), 0);
  EXPECT_EQ(f.meter.peak_reserved(), 0);
  EXPECT_EQ(f.meter.device_requests(), 0);
  EXPECT_TRUE(f.source->pages.empty());
  EXPECT_EQ(f.source->addresses, 0) << "the addresses go back too: a wholly free segment is not kept";
  EXPECT_TRUE(f.allocator.segments().empty());

  f.source->maps_left = INT64_MAX;
  Block* held = f.get(kPage + kMiB);  // 19 MiB of page 1 are free
  f.source->taken_log();
  f.source->maps_left = 1;
  EXPECT_THROW(f.get(3 * kPage), OutOfMemory);
  EXPECT_EQ(f.source->taken_log(), (Log{"map 2", "no 3", "unmap 2", "no 2"})) << "and once more";
  EXPECT_EQ(f.meter.reserved(), 2 * kPage);
  EXPECT_EQ(f.source->misused, 0);
  expect_consistent(f.allocator);
  Block* free_still = f.get(19 * kMiB);
  EXPECT_EQ(free_still->offset, kPage + kMiB) << "what was free is still there";

  // When the device has memory again, it goes on where it was.
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
  EXPECT_EQ(f.source->taken_log(), Log{}) << "nothing can be mapped, and nothing goes back";
  f.source->no_addresses = false;
  f.allocator.free(f.get(kPage));
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

// A segment of its own keeps the large pool's rule for splitting; expandable ones split from 512 bytes on,
// whichever way new memory comes by now.
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
  EXPECT_EQ(whole->segment->page, 0) << "the best fit is taken, whatever segment it is in";
  EXPECT_EQ(whole->size, 12 * kMiB);
  for (Block* b : {in_pages, whole}) f.allocator.free(b);
}

// The largest free piece is memory: neither the addresses without it, nor what is in use.
TEST(L05_Expandable, TheMessageNamesTheLargestFreePiece) {
  Pages f;
  f.allocator.set_budget(4 * kPage + kSmallPage);
  Block *a = f.get(17 * kMiB), *b = f.get(30 * kMiB), *c = f.get(25 * kMiB), *small = f.get(1);
  f.allocator.free(b);  // of its 30 MiB, from 17 to 47, page 1 is unmapped: 3 and 7 MiB stay
  try {
    f.get(60 * kMiB);
    ADD_FAILURE() << "there was memory to be had";
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("the largest free piece is 8.0 MiB"), std::string::npos)
        << "behind c, from 72 to 80:\n"
        << text;
    EXPECT_NE(text.find("budget 82.0 MiB, reserved 62.0 MiB, allocated 42.0 MiB"), std::string::npos) << text;
  }
  Block* last = f.get(8 * kMiB);
  EXPECT_EQ(last->offset, 72 * kMiB);
  try {
    f.get(60 * kMiB);
    ADD_FAILURE() << "there was memory to be had";
  } catch (const OutOfMemory& e) {
    EXPECT_NE(std::string(e.what()).find("the largest free piece is 7.0 MiB"), std::string::npos) << e.what();
  }
  for (Block* block : {a, c, small, last}) f.allocator.free(block);
}

// A history that begins in the middle, and every event from then on, speaks of whole pages.
TEST(L05_Expandable, AHistoryThatBeginsLateSpeaksOfWholePages) {
  Pages f;
  Block *a = f.get(30 * kMiB), *b = f.get(50 * kMiB), *c = f.get(3 * kMiB), *small = f.get(7);
  f.allocator.free(b);
  f.allocator.empty_cache();  // pages 2 and 3
  f.allocator.keep_history();
  std::vector<std::array<int64_t, 2>> mapped;
  for (const MemoryEvent& e : f.allocator.history()) {
    if (e.action == Action::SegmentMap) mapped.push_back({e.address, e.bytes});
    EXPECT_EQ(e.op, "before the history");
  }
  const auto base = reinterpret_cast<int64_t>(a->segment->base);
  const std::vector<std::array<int64_t, 2>> expected{
      {base, 2 * kPage},
      {base + 4 * kPage, kPage},
      {reinterpret_cast<int64_t>(small->segment->base), kSmallPage}};
  EXPECT_EQ(mapped, expected);
  EXPECT_EQ(f.allocator.history().size(), 6u) << "three runs of pages, three blocks";
  for (Block* block : {a, c, small}) f.allocator.free(block);
}

}  // namespace
}  // namespace gradus
