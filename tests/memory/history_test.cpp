// The memory history: every action once, with all fields of history.h; the state after a replay of the
// events; and the peak that is found in them.
#include <gtest/gtest.h>

#include <random>

#include "tests/memory/allocator_fixture.h"
#include "tests/refusal_testing.h"

namespace gradus {

void PrintTo(const MemoryEvent& e, std::ostream* out) {
  *out << name_of(e.action) << " " << e.address << " " << e.bytes << " " << e.requested << " "
       << name_of(e.kind) << " \"" << e.name << "\" " << e.shape << " in \"" << e.op << "\"";
}

namespace {

int64_t address_of(const Block* b) { return reinterpret_cast<int64_t>(b->segment->base) + b->offset; }

void expect_events(const std::vector<MemoryEvent>& events, const std::vector<MemoryEvent>& expected) {
  std::vector<std::string> is, should;
  for (const MemoryEvent& e : events) is.push_back(testing::PrintToString(e));
  for (const MemoryEvent& e : expected) should.push_back(testing::PrintToString(e));
  EXPECT_EQ(is, should);
}

TEST(L04_History, ActionsAreCalledAsPyTorchCallsThem) {
  const std::pair<Action, const char*> names[] = {{Action::Alloc, "alloc"},
                                                  {Action::Free, "free"},
                                                  {Action::ChangeKind, "kind"},
                                                  {Action::SegmentAlloc, "segment_alloc"},
                                                  {Action::SegmentFree, "segment_free"},
                                                  {Action::SegmentMap, "segment_map"},
                                                  {Action::SegmentUnmap, "segment_unmap"},
                                                  {Action::OutOfMemory, "oom"}};
  for (const auto& [action, name] : names) EXPECT_STREQ(name_of(action), name);
}

TEST(L04_History, EachActionIsRecordedOnceWithAllThereIsToSay) {
  Fixture f;
  Allocator& a = f.allocator;
  a.set_budget(42 * kMiB);
  a.keep_history();
  f.ranges.begin("backward"), f.ranges.begin("linear");
  Block* first = a.allocate(1000, Kind::Temporary, "y", {2, 125});
  Block* second = a.allocate(5, Kind::Weight, "w", {5});
  const int64_t at = address_of(first);
  f.ranges.end();
  a.change_kind(first, Kind::Activation);
  Block* cached = a.allocate(40 * kMiB, Kind::Comm, "c");
  const int64_t far = address_of(cached);
  a.free(cached);
  EXPECT_THROW(a.allocate(50 * kMiB, Kind::Data, "batch", {50, kMiB}), OutOfMemory);
  a.free(first);
  f.ranges.end();
  a.free(second);
  a.empty_cache();
  a.empty_cache();  // nothing is left to release
  expect_events(a.history(),
                {{Action::SegmentAlloc, at, 2 * kMiB, 0, Kind::Other, "", "backward/linear", {}},
                 {Action::Alloc, at, 1024, 1000, Kind::Temporary, "y", "backward/linear", {2, 125}},
                 {Action::Alloc, at + 1024, 512, 5, Kind::Weight, "w", "backward/linear", {5}},
                 {Action::ChangeKind, at, 1024, 1000, Kind::Activation, "y", "backward", {2, 125}},
                 {Action::SegmentAlloc, far, 40 * kMiB, 0, Kind::Other, "", "backward", {}},
                 {Action::Alloc, far, 40 * kMiB, 40 * kMiB, Kind::Comm, "c", "backward", {}},
                 {Action::Free, far, 40 * kMiB, 40 * kMiB, Kind::Comm, "c", "backward", {}},
                 {Action::SegmentFree, far, 40 * kMiB, 0, Kind::Other, "", "backward", {}},
                 {Action::OutOfMemory, 0, 40 * kMiB, 50 * kMiB, Kind::Data, "batch", "backward", {50, kMiB}},
                 {Action::Free, at, 1024, 1000, Kind::Activation, "y", "backward", {2, 125}},
                 {Action::Free, at + 1024, 512, 5, Kind::Weight, "w", "", {5}},
                 {Action::SegmentFree, at, 2 * kMiB, 0, Kind::Other, "", "", {}}});
  double before = 0;
  for (const MemoryEvent& e : a.history()) {
    EXPECT_GE(e.seconds, before) << "since the history began";
    before = e.seconds;
  }
  EXPECT_LT(before, 60);
  expect_refused("the history is being recorded already", [&] { a.keep_history(); });
}

TEST(L04_History, WhatIsThereAlreadyComesFirstSegmentBySegment) {
  Fixture f;
  Block *small = f.get(100, "small"), *gone = f.get(3 * kMiB, "gone"), *large = f.get(5 * kMiB, "large");
  f.allocator.change_kind(large, Kind::Master);
  f.allocator.free(gone);
  f.ranges.begin("step");
  f.allocator.keep_history();
  EXPECT_EQ(f.allocator.range(), "step") << "keep_history() must restore the ranges";
  const std::string op = "before the history";
  const auto segment = [&](const Block* b, int64_t bytes) {
    const int64_t base = reinterpret_cast<int64_t>(b->segment->base);
    return MemoryEvent{Action::SegmentAlloc, base, bytes, 0, Kind::Other, "", op, {}};
  };
  expect_events(
      f.allocator.history(),
      {segment(small, 2 * kMiB),
       {Action::Alloc, address_of(small), 512, 100, Kind::Other, "small", op, {100}},
       segment(large, 20 * kMiB),
       {Action::Alloc, address_of(large), 5 * kMiB, 5 * kMiB, Kind::Master, "large", op, {5 * kMiB}}});
  for (Block* b : {small, large}) f.allocator.free(b);
}

// The bytes left in the budget: 0 if more is reserved than it allows, and 0 without a budget.
TEST(L04_History, AFailureSaysWhatTheBudgetHadLeft) {
  Fixture f(64 * kMiB);
  f.allocator.keep_history();
  Block* held = f.get(30 * kMiB);
  for (const auto& [budget, left] :
       {std::pair<int64_t, int64_t>(0, 0), {37 * kMiB, 7 * kMiB}, {30 * kMiB, 0}, {10 * kMiB, 0}}) {
    f.allocator.set_budget(budget);
    EXPECT_THROW(f.get(40 * kMiB), OutOfMemory);
    const MemoryEvent& e = f.allocator.history().back();
    EXPECT_EQ(std::tuple(e.action, e.address, e.bytes, e.requested),
              std::tuple(Action::OutOfMemory, int64_t(0), left, 40 * kMiB))
        << "budget " << budget;
  }
  f.allocator.free(held);
}

// A block of the allocator, and the same block in a replay.
auto facts(const Block& b) { return std::tuple(b.kind, b.requested, b.size, b.name); }
auto facts(const MemoryEvent& e) { return std::tuple(e.kind, e.requested, e.bytes, e.name); }

// From operation `begin` on, the history is recorded and replayed while the allocator works.
void replay_random_use(bool expandable, int begin) {
  Fixture f;
  f.allocator.set_expandable(expandable);
  f.allocator.set_budget(200 * kMiB);
  std::mt19937 random(5);
  std::vector<Block*> live;
  MemoryReplay replay;
  size_t seen = 0;
  for (int i = 0; i < 2000; ++i) {
    if (i == begin) f.allocator.keep_history();
    const uint32_t what = random() % 30;
    if (what < 15 || live.empty()) {
      try {
        live.push_back(f.get(int64_t(random()) % (int64_t(1) << random() % 26), what % 2 ? "a" : "b"));
      } catch (const OutOfMemory&) {
      }
    } else {
      std::swap(live[random() % live.size()], live.back());
      if (what == 15) f.allocator.empty_cache();
      if (what < 20) {
        f.allocator.change_kind(live.back(), Kind(random() % kKinds));
      } else {
        f.allocator.free(live.back());
        live.pop_back();
      }
    }
    if (i < begin) continue;
    const auto& history = f.allocator.history();
    for (; seen < history.size(); ++seen) replay.apply(history[seen]);
    ASSERT_EQ(replay.meter.now(), f.meter.now()) << i;
    ASSERT_EQ(replay.meter.reserved(), f.meter.reserved()) << i;
    ASSERT_EQ(replay.alive.size(), live.size()) << i;
    for (const Block* b : live) ASSERT_EQ(facts(replay.alive.at(address_of(b))), facts(*b)) << i;
    if (begin > 0) continue;
    ASSERT_EQ(replay.meter.at_peak(), f.meter.at_peak()) << i;
    ASSERT_EQ(replay.meter.peak_reserved(), f.meter.peak_reserved()) << i;
    if (!expandable) {
      ASSERT_EQ(replay.meter.device_requests(), f.meter.device_requests()) << i;
    }
  }
  for (Block* b : live) f.allocator.free(b);
}

TEST(L04_History, AReplayHasTheAllocatorsBlocksAndMeter) {
  for (const int begin : {0, 500}) replay_random_use(false, begin);
}
TEST(L05_Expandable, AReplayHasTheAllocatorsBlocksAndMeter) {
  for (const int begin : {0, 500}) replay_random_use(true, begin);
}

TEST(L04_History, ThePeakEventIsTheFirstMaximum) {
  const auto event = [](Action action, int64_t bytes) {
    return MemoryEvent{action, 0, bytes, bytes, Kind::Other, "", "", {}};
  };
  using enum Action;
  EXPECT_THROW(peak_event({}), Error);
  EXPECT_THROW(peak_event({event(SegmentAlloc, 4096), event(OutOfMemory, 512)}), Error);
  EXPECT_EQ(peak_event({event(SegmentMap, 4096), event(Alloc, 512)}), 1u);
  EXPECT_EQ(peak_event({event(Alloc, 512), event(Free, 512), event(Alloc, 512)}), 0u);
  EXPECT_EQ(peak_event({event(Alloc, 512), event(ChangeKind, 512), event(Alloc, 512), event(Free, 512),
                        event(OutOfMemory, 9999), event(Alloc, 512), event(SegmentFree, 4096)}),
            2u);
  EXPECT_EQ(peak_event({event(Alloc, 512), event(Alloc, 512), event(Free, 512), event(Alloc, 1024)}), 3u);
}

// Blocks alive at the peak are those of that instant, the largest request first, with their kinds at that
// time; the peak is measured in the bytes of blocks.
TEST(L04_History, ThePeaksBlocksAreThoseOfThatInstant) {
  std::vector<MemoryEvent> history;
  const auto add = [&](Action action, int64_t address, int64_t bytes, int64_t requested, Kind kind,
                       const char* name) {
    history.push_back({action, address, bytes, requested, kind, name, "", {}, 0});
  };
  add(Action::SegmentAlloc, 0, 2 * kMiB, 0, Kind::Other, "");
  EXPECT_THROW(memory_peak(history), Error) << "no Alloc yet, so no peak: only a segment, which is no block";
  add(Action::Alloc, 0, 512, 511, Kind::Temporary, "a");
  add(Action::ChangeKind, 0, 512, 511, Kind::Activation, "a");
  add(Action::Alloc, 512, 1024, 1023, Kind::Data, "b");
  add(Action::Alloc, 2048, 1536, 1, Kind::Weight, "c");
  add(Action::ChangeKind, 512, 1024, 1023, Kind::Comm, "b");
  add(Action::Free, 0, 512, 511, Kind::Activation, "a");
  add(Action::Alloc, 0, 512, 512, Kind::Other, "d");
  const MemoryPeak peak = memory_peak(history);
  EXPECT_EQ(peak.reached_by.name, "c");
  EXPECT_EQ(peak.usage.allocated(), 512 + 1024 + 1536);
  EXPECT_EQ(peak.usage[Kind::Data], 1023);
  EXPECT_EQ(peak.usage.rounding, 1 + 1 + 1535);
  std::string alive;
  for (const MemoryEvent& e : peak.alive) alive += e.name + " " + name_of(e.kind) + ", ";
  EXPECT_EQ(alive, "b data, a activation, c weight, ");
}

}  // namespace
}  // namespace gradus
