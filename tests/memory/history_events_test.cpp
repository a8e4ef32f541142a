// What a memory history says event by event, replayed by hand.
#include <gtest/gtest.h>

#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

TEST(L04_HistoryEvents, ActionsAreCalledAsPyTorchCallsThem) {
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

TEST(L04_HistoryEvents, PathsGoFromTheOutermost) {
  const NamedRange a{"step", nullptr}, b{"backward", &a}, c{"linear", &b};
  EXPECT_EQ(path_of(&c), "step/backward/linear");
  EXPECT_EQ(path_of(&a), "step");
  EXPECT_EQ(path_of(nullptr), "");
}

TEST(L04_HistoryEvents, AReplayFollowsKindsAndNames) {
  MemoryReplay replay;
  const auto event = [](Action action, int64_t address, int64_t bytes, int64_t requested, Kind kind,
                        const char* name) {
    return MemoryEvent{action, address, bytes, requested, kind, name, "op", {requested}, 0.5};
  };
  replay.apply(event(Action::SegmentAlloc, 0, 2048, 0, Kind::Other, ""));
  replay.apply(event(Action::Alloc, 0, 512, 500, Kind::Temporary, "x"));
  replay.apply(event(Action::Alloc, 512, 1024, 1000, Kind::Weight, "w"));
  replay.apply(event(Action::ChangeKind, 0, 512, 500, Kind::Activation, "x"));
  EXPECT_EQ(replay.meter.now()[Kind::Temporary], 0);
  EXPECT_EQ(replay.meter.now()[Kind::Activation], 500);
  EXPECT_EQ(replay.meter.now()[Kind::Weight], 1000);
  EXPECT_EQ(replay.meter.now().rounding, 36);
  EXPECT_EQ(replay.meter.at_peak()[Kind::Temporary], 500) << "its kind at the peak";
  ASSERT_EQ(replay.alive.size(), 2u);
  EXPECT_EQ(replay.alive.at(0).kind, Kind::Activation) << "the present kind";
  EXPECT_EQ(replay.alive.at(0).action, Action::Alloc);
  EXPECT_EQ(replay.alive.at(512).name, "w");
  replay.apply(event(Action::OutOfMemory, 0, 7, 9000, Kind::Data, "too large"));
  EXPECT_EQ(replay.alive.size(), 2u) << "a request that failed left nothing";
  replay.apply(event(Action::Free, 0, 512, 500, Kind::Activation, "x"));
  replay.apply(event(Action::ChangeKind, 512, 1024, 1000, Kind::Master, "w"));
  replay.apply(event(Action::Free, 512, 1024, 1000, Kind::Master, "w"));
  EXPECT_EQ(replay.meter.now(), Usage{});
  EXPECT_TRUE(replay.alive.empty());
  replay.apply(event(Action::SegmentMap, 4096, 4096, 0, Kind::Other, ""));
  EXPECT_EQ(replay.meter.reserved(), 2048 + 4096);
  replay.apply(event(Action::SegmentUnmap, 4096, 4096, 0, Kind::Other, ""));
  replay.apply(event(Action::SegmentFree, 0, 2048, 0, Kind::Other, ""));
  EXPECT_EQ(replay.meter.reserved(), 0);
  EXPECT_EQ(replay.meter.peak_reserved(), 6144);
}

// One request after the other, in the order and with the addresses of what happened.
TEST(L04_HistoryEvents, EachRequestIsItsEvents) {
  Fixture f;
  Block* const before = f.allocator.allocate(700, Kind::Weight, "before", {7, 25});
  f.allocator.keep_history();
  Block* const large = f.allocator.allocate(3 * kMiB, Kind::Data, "large", {3});
  Block* const small = f.allocator.allocate(1, Kind::Comm, "small");
  f.allocator.change_kind(small, Kind::Vendor);
  f.allocator.free(small);
  f.allocator.free(large);
  f.allocator.empty_cache();
  const auto base = reinterpret_cast<int64_t>(before->segment->base);
  struct Expected {
    Action action;
    int64_t bytes, requested;
    Kind kind;
    const char *name, *op;
    Shape shape;
  };
  const Expected expected[] = {
      {Action::SegmentAlloc, 2 * kMiB, 0, Kind::Other, "", "before the history", {}},
      {Action::Alloc, 1024, 700, Kind::Weight, "before", "before the history", {7, 25}},
      {Action::SegmentAlloc, 20 * kMiB, 0, Kind::Other, "", "", {}},
      {Action::Alloc, 3 * kMiB, 3 * kMiB, Kind::Data, "large", "", {3}},
      {Action::Alloc, 512, 1, Kind::Comm, "small", "", {}},
      {Action::ChangeKind, 512, 1, Kind::Vendor, "small", "", {}},
      {Action::Free, 512, 1, Kind::Vendor, "small", "", {}},
      {Action::Free, 3 * kMiB, 3 * kMiB, Kind::Data, "large", "", {3}},
      {Action::SegmentFree, 20 * kMiB, 0, Kind::Other, "", "", {}}};
  const std::vector<MemoryEvent>& history = f.allocator.history();
  ASSERT_EQ(history.size(), std::size(expected));
  for (size_t i = 0; i < history.size(); ++i) {
    const MemoryEvent& e = history[i];
    EXPECT_EQ(e.action, expected[i].action) << i;
    EXPECT_EQ(e.bytes, expected[i].bytes) << i;
    EXPECT_EQ(e.requested, expected[i].requested) << i;
    EXPECT_EQ(e.kind, expected[i].kind) << i;
    EXPECT_EQ(e.name, expected[i].name) << i;
    EXPECT_EQ(e.op, expected[i].op) << i;
    EXPECT_EQ(e.shape, expected[i].shape) << i;
  }
  EXPECT_EQ(history[1].address, base);
  EXPECT_EQ(history[4].address, base + 1024) << "behind what was there";
  EXPECT_EQ(history[6].address, history[4].address);
  EXPECT_EQ(history[3].address, history[2].address);
  EXPECT_EQ(history[8].address, history[2].address);
  f.allocator.free(before);
}

// Alive at the peak are those of that instant, with their kinds of then.
TEST(L04_HistoryEvents, ThePeaksBlocksAreThoseOfThatInstant) {
  std::vector<MemoryEvent> history;
  const auto add = [&](Action action, int64_t address, int64_t bytes, Kind kind, const char* name) {
    history.push_back({action, address, bytes, bytes - 1, kind, name, "", {}, 0});
  };
  add(Action::Alloc, 0, 512, Kind::Temporary, "a");
  add(Action::ChangeKind, 0, 512, Kind::Activation, "a");
  add(Action::Alloc, 512, 1024, Kind::Data, "b");
  add(Action::Alloc, 2048, 1024, Kind::Weight, "c");
  add(Action::ChangeKind, 512, 1024, Kind::Comm, "b");
  add(Action::Free, 0, 512, Kind::Activation, "a");
  add(Action::Alloc, 0, 512, Kind::Other, "d");
  EXPECT_EQ(peak_event(history), 3u);
  const MemoryPeak peak = memory_peak(history);
  ASSERT_EQ(peak.alive.size(), 3u);
  EXPECT_EQ(peak.alive[0].name, "b");
  EXPECT_EQ(peak.alive[0].kind, Kind::Data) << "Comm only later";
  EXPECT_EQ(peak.alive[1].name, "c");
  EXPECT_EQ(peak.alive[2].name, "a");
  EXPECT_EQ(peak.alive[2].kind, Kind::Activation);
  EXPECT_EQ(peak.reached_by.name, "c");
  EXPECT_EQ(peak.usage.rounding, 3);
}

}  // namespace
}  // namespace gradus
