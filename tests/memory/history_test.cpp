// The memory history: every state of the allocator can be replayed from it, and every event says what it was
// for.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <tuple>

#include "src/data/dummy.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

// What is alive, as (kind, requested, bytes) by address, and what is reserved.
struct State {
  std::map<int64_t, std::tuple<Kind, int64_t, int64_t>> blocks;
  int64_t reserved = 0;
  bool operator==(const State&) const = default;

  void apply(const MemoryEvent& e) {
    switch (e.action) {
      case Action::Alloc:
        EXPECT_TRUE(blocks.emplace(e.address, std::tuple(e.kind, e.requested, e.bytes)).second);
        break;
      case Action::Free:
        EXPECT_EQ(blocks.at(e.address), std::tuple(e.kind, e.requested, e.bytes));
        blocks.erase(e.address);
        break;
      case Action::ChangeKind: std::get<Kind>(blocks.at(e.address)) = e.kind; break;
      case Action::SegmentAlloc:
      case Action::SegmentMap: reserved += e.bytes; break;
      case Action::SegmentFree:
      case Action::SegmentUnmap: reserved -= e.bytes; break;
      case Action::OutOfMemory: break;
    }
  }
  static State of(const Allocator& allocator) {
    State s{{}, allocator.meter().reserved()};
    for (const auto& [serial, segment] : allocator.segments())
      for (const Block* b = segment.first; b; b = b->next)
        if (!b->free)
          s.blocks[reinterpret_cast<int64_t>(segment.base) + b->offset] = {b->kind, b->requested, b->size};
    return s;
  }
};

void replay_random_use(bool expandable) {
  Fixture f(int64_t(1) << 30);
  f.allocator.set_expandable(expandable);
  std::mt19937 random(3);
  std::vector<Block*> live;
  State replayed;
  MemoryReplay engines;
  size_t seen = 0;
  for (int i = 0; i < 4000; ++i) {
    if (i == 500) f.allocator.keep_history();  // in the middle of it
    if (live.size() < 40 && random() % 2 == 0) {
      const int64_t bytes = int64_t(random()) % (int64_t(1) << random() % 26);
      live.push_back(f.allocator.allocate(bytes, Kind(random() % kKinds), "random"));
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      if (random() % 3 == 0) {
        f.allocator.change_kind(live.back(), Kind(random() % kKinds));
      } else {
        f.allocator.free(live.back());
        live.pop_back();
      }
    }
    if (random() % 100 == 0) f.allocator.empty_cache();
    if (i == 3000) {
      EXPECT_THROW(f.get(int64_t(2) << 30), OutOfMemory);
    }
    if (i < 500) continue;
    const std::vector<MemoryEvent>& history = f.allocator.history();
    for (; seen < history.size(); ++seen) replayed.apply(history[seen]), engines.apply(history[seen]);
    ASSERT_EQ(replayed, State::of(f.allocator)) << "after request " << i;
    ASSERT_EQ(engines.meter.now(), f.meter.now()) << "after request " << i;
    ASSERT_EQ(engines.meter.reserved(), f.meter.reserved()) << "after request " << i;
    ASSERT_EQ(engines.alive.size(), live.size()) << "after request " << i;
  }
  EXPECT_GT(seen, 3000u);
  EXPECT_THROW(f.allocator.keep_history(), Error);
  for (Block* b : live) f.allocator.free(b);
}

TEST(L04_History, ReplayedItGivesEveryState) { replay_random_use(false); }
TEST(L04_History, ReplayedItGivesEveryStateOfExpandableSegments) { replay_random_use(true); }

const MemoryEvent& find(const std::vector<MemoryEvent>& history, Action action, const std::string& name) {
  for (const MemoryEvent& e : history)
    if (e.action == action && e.name == name) return e;
  fail("no ", name_of(action), " of ", name);
}

TEST(L04_History, EventsSayNameKindShapeOpAndTime) {
  Context context("meta");
  Device& device = context.device;
  Leaf leaf;
  leaf.name = "w";
  Tensor w(device, {6, 4}, DType::F32, Kind::Weight, "w"), x(device, {3, 4}, DType::F32, Kind::Data, "x");
  attach(w, leaf, "w");
  device.allocator().keep_history();
  {
    const ProfileRange step("step");
    ProfileRange range("forward");
    Tape tape;
    const Tensor y = gelu(linear(x, w, {}));
    range.next("backward");
    tape.backward(y, empty_like(y, "dy"));
  }
  const std::vector<MemoryEvent>& history = device.allocator().history();

  const MemoryEvent& weight = find(history, Action::Alloc, "w");
  EXPECT_EQ(weight.op, "before the history");
  EXPECT_EQ(weight.kind, Kind::Weight);
  EXPECT_EQ(weight.shape, (Shape{6, 4}));
  const MemoryEvent& y = find(history, Action::Alloc, "linear");
  EXPECT_EQ(y.op, "step/forward/linear");
  EXPECT_EQ(y.kind, Kind::Temporary);
  EXPECT_EQ(y.shape, (Shape{3, 6}));
  EXPECT_EQ(y.requested, 3 * 6 * 4);
  EXPECT_EQ(y.bytes, 512);
  const MemoryEvent& saved = find(history, Action::ChangeKind, "linear");
  EXPECT_EQ(saved.kind, Kind::Activation);
  EXPECT_EQ(saved.op, "step/forward/gelu");
  EXPECT_EQ(find(history, Action::Free, "linear").op, "step/backward/gelu");
  const MemoryEvent& gradient = find(history, Action::Alloc, "w.grad");
  EXPECT_EQ(gradient.op, "step/backward/linear");
  EXPECT_EQ(gradient.kind, Kind::Gradient);

  for (size_t i = 1; i < history.size(); ++i) EXPECT_GE(history[i].seconds, history[i - 1].seconds);
  EXPECT_LT(history.back().seconds, 60);
  EXPECT_EQ(device.allocator().range, nullptr);
}

TEST(L04_History, AFailedRequestIsAnEventAfterTheCacheWasEmptied) {
  Fixture f;
  f.allocator.set_budget(40 * kMiB);
  f.allocator.keep_history();
  f.allocator.free(f.get(20 * kMiB));
  Block* held = f.get(100);
  EXPECT_THROW(f.allocator.allocate(50 * kMiB, Kind::Data, "large", {50}), OutOfMemory);
  const std::vector<MemoryEvent>& history = f.allocator.history();
  ASSERT_GE(history.size(), 2u);
  const MemoryEvent &freed = history[history.size() - 2], &failed = history.back();
  EXPECT_EQ(freed.action, Action::SegmentFree);
  EXPECT_EQ(freed.bytes, 20 * kMiB);
  EXPECT_EQ(failed.action, Action::OutOfMemory);
  EXPECT_EQ(failed.requested, 50 * kMiB);
  EXPECT_EQ(failed.bytes, 38 * kMiB);  // what the budget had left
  EXPECT_EQ(failed.name, "large");
  EXPECT_EQ(failed.kind, Kind::Data);
  EXPECT_EQ(failed.shape, (Shape{50}));
  f.allocator.free(held);
}

TEST(L05_Expandable, EventsSayWhichPagesComeAndGo) {
  constexpr int64_t kPage = 20 * kMiB;
  Fixture f;
  f.allocator.set_expandable(true);
  f.allocator.keep_history();
  Block *a = f.get(30 * kMiB), *b = f.get(50 * kMiB);
  f.allocator.free(b);
  f.allocator.empty_cache();
  const auto base = reinterpret_cast<int64_t>(a->segment->base);
  std::vector<std::array<int64_t, 3>> pages;
  for (const MemoryEvent& e : f.allocator.history())
    if (e.action == Action::SegmentMap || e.action == Action::SegmentUnmap)
      pages.push_back({int64_t(e.action), (e.address - base) / kPage, e.bytes / kPage});
  const std::vector<std::array<int64_t, 3>> expected{{int64_t(Action::SegmentMap), 0, 2},
                                                     {int64_t(Action::SegmentMap), 2, 2},
                                                     {int64_t(Action::SegmentUnmap), 2, 2}};
  EXPECT_EQ(pages, expected);
  f.allocator.free(a);
}

// The peak is found again in the history, with who was alive at it and what it was for.
TEST(L04_History, ThePeakIsTheMetersPeak) {
  Context context("meta", 1);
  context.device.allocator().keep_history();
  Transformer model({.vocab = 65, .context = 24, .layers = 2, .heads = 4, .channels = 32});
  AdamW optimizer(model.parameters);
  for (int step = 0; step < 2; ++step) {
    const DummyBatch batch = dummy_batch(model.config, 4, 24);
    ProfileRange range("forward");
    Tape tape;
    const Tensor loss = batch.loss(model);
    model.parameters.zero_grad();
    range.next("backward");
    tape.backward(loss);
    range.next("update");
    optimizer.step(1e-3);
  }
  const MemoryPeak peak = memory_peak(context.device.allocator().history());
  EXPECT_EQ(peak.usage, context.device.meter().at_peak());
  EXPECT_TRUE(peak.reached_by.op.starts_with("forward/") || peak.reached_by.op.starts_with("backward/"))
      << peak.reached_by.op;
  Usage alive;
  for (const MemoryEvent& b : peak.alive) {
    alive.by_kind[int(b.kind)] += b.requested;
    alive.rounding += b.bytes - b.requested;
  }
  EXPECT_EQ(alive, peak.usage) << "who is alive sums to the peak";
  for (size_t i = 1; i < peak.alive.size(); ++i)
    EXPECT_GE(peak.alive[i - 1].requested, peak.alive[i].requested);
  EXPECT_THROW(memory_peak({}), Error);
}

// Of two equal peaks the first counts; of a block what it takes, not what was asked for.
TEST(L04_History, ThePeakIsTheFirstOfEqualOnesAndCountsBlocks) {
  std::vector<MemoryEvent> history;
  const auto add = [&](Action action, int64_t address, int64_t bytes, int64_t requested, const char* name) {
    history.push_back({action, address, bytes, requested, Kind::Data, name, "", {}, 0});
  };
  add(Action::SegmentAlloc, 0, 2 * kMiB, 0, "");
  EXPECT_THROW(memory_peak(history), Error) << "no Alloc yet, so no peak: only a segment, which is no block";
  add(Action::Alloc, 0, 512, 1, "a");
  add(Action::Alloc, 512, 1024, 513, "b");
  add(Action::Free, 0, 512, 1, "a");
  add(Action::Alloc, 0, 512, 512, "c");
  const MemoryPeak peak = memory_peak(history);
  EXPECT_EQ(peak.reached_by.name, "b");
  EXPECT_EQ(peak.usage.allocated(), 1536);
  EXPECT_EQ(peak.usage[Kind::Data], 514);
  ASSERT_EQ(peak.alive.size(), 2u);
  EXPECT_EQ(peak.alive[0].name, "b");
  EXPECT_EQ(peak.alive[1].name, "a");
  add(Action::Alloc, 2048, 512, 1, "d");
  EXPECT_EQ(memory_peak(history).reached_by.name, "d") << "the last event of all";
}

}  // namespace
}  // namespace gradus
