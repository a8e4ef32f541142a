// Lesson 05: the drawn example follows the rules, the stream's figures hold for other streams and on every
// device, and leaks and spikes are found where there are some, and nowhere else.
#include <gtest/gtest.h>

#include <sstream>

#include "lessons/05_allocator/drawing.h"
#include "lessons/05_allocator/findings.h"
#include "lessons/05_allocator/stream.h"
#include "tests/devices.h"

namespace gradus {
namespace {

// ---- the drawn example ----

TEST(L05_Drawing, TheExampleFollowsTheRules) {
  std::ostringstream out;
  draw_example(out);
  const std::string text = out.str();
  const auto below = [&](const std::string& step) {  // the first line that is drawn under it
    const size_t begin = text.find("\n", text.find("  " + step)) + 1;
    return text.substr(begin, text.find("\n", begin) - begin);
  };
  EXPECT_EQ(below("get b,"), "    small [aaaaaaaaaaab.....................] 2.0 MiB");
  EXPECT_NE(text.find("    large [cccdddddeeee........] 20.0 MiB"), std::string::npos);
  EXPECT_NE(text.find("    large [...ddddd............] 20.0 MiB"), std::string::npos) << "e merged";
  EXPECT_NE(text.find("    large [ff-ddddd............] 20.0 MiB"), std::string::npos)
      << "best fit, not split";
  EXPECT_NE(text.find("    large [gggggggggggggg] 14.0 MiB"), std::string::npos);
  EXPECT_NE(text.find("    large [..............] 14.0 MiB"), std::string::npos) << "cached";
  EXPECT_EQ(below("empty the cache:"), "    large [...ddddd............] 20.0 MiB");
  EXPECT_NE(text.find("    large [hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh....] 40.0 MiB"), std::string::npos);
}

TEST(L05_Drawing, AnotherStateIsDrawnOtherwise) {
  Meter meter;
  Allocator allocator(meta_source(), meter);
  Block* x = allocator.allocate(int64_t(1) << 20, Kind::Other, "x");
  Block* tiny = allocator.allocate(1, Kind::Other, "tiny");
  std::ostringstream out;
  draw_segments(out, allocator);
  EXPECT_EQ(out.str(), "    small [xxxxxxxxxxxxxxxxt................] 2.0 MiB\n")
      << "a block is never nothing";
  allocator.free(x);
  allocator.free(tiny);
}

// ---- leaks and spikes, in histories made by hand ----

// Steps of a program that takes blocks of 100 bytes for an hour of events or so.
struct Recorder {
  Recorder() { allocator.keep_history(); }
  ~Recorder() {
    for (Block* b : kept) allocator.free(b);
  }
  void begin_step() {
    range.name = "data";
    allocator.range = &range;
    allocator.free(allocator.allocate(8, Kind::Data, "inputs"));
    range.name = "forward";
  }
  void end_program() { allocator.range = nullptr; }
  Block* get(const char* name, int64_t bytes) { return allocator.allocate(bytes, Kind::Temporary, name); }
  void keep(const char* name, int64_t bytes) { kept.push_back(get(name, bytes)); }
  void free_oldest() {
    allocator.free(kept.front());
    kept.erase(kept.begin());
  }
  void pass(const char* name, int64_t bytes) { allocator.free(get(name, bytes)); }
  std::vector<Leak> leaks(int64_t patience) const {
    return find_leaks(allocator.history(), step_begins(allocator.history(), "data"), patience);
  }
  std::optional<Spike> spike(size_t short_life) const {
    return find_spike(allocator.history(), step_begins(allocator.history(), "data"), short_life);
  }
  Meter meter;
  Allocator allocator{meta_source(), meter};
  NamedRange range{"", nullptr};
  std::vector<Block*> kept;
};

TEST(L05_Findings, WhatStaysStepAfterStepIsALeak) {
  RecordProperty("exercise", "05.2");
  Recorder r;
  r.keep("weight", 4000);
  r.range.name = "forward";
  r.allocator.range = &r.range;
  r.keep("logits", 500);  // before the first step: it belongs to none
  for (int step = 0; step < 6; ++step) {
    r.begin_step();
    if (step == 0) r.keep("gradient", 4000);  // once, and for good: no leak
    r.pass("activation", 10'000);
    if (step % 2 == 0) r.keep("loss", 4);
    r.keep("logits", 1000);
  }
  r.end_program();
  const std::vector<Leak> leaks = r.leaks(2);
  ASSERT_EQ(leaks.size(), 2u);
  EXPECT_EQ(leaks[0].name, "logits") << "the largest first";
  EXPECT_EQ(leaks[0].op, "forward");
  EXPECT_EQ(leaks[0].bytes, 4000) << "those of the last two steps may still be freed in time";
  EXPECT_EQ(leaks[0].steps, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(leaks[1].name, "loss");
  EXPECT_EQ(leaks[1].steps, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(r.leaks(0)[0].bytes, 6000);
  EXPECT_TRUE(r.leaks(5).empty()) << "one step is too few to tell";
}

TEST(L05_Findings, WhatIsFreedInTimeIsNone) {
  Recorder r;
  for (int step = 0; step < 8;
       ++step) {  // each lives for two steps, as the state of a recurrent network does
    r.begin_step();
    r.keep("state", 500);
    if (step >= 2) r.free_oldest();
    r.pass("activation", 10'000);
  }
  r.end_program();
  EXPECT_TRUE(r.leaks(2).empty());
  EXPECT_EQ(r.leaks(1).size(), 1u) << "too little patience takes it for one";
  for (int step = 6; step < 8; ++step) r.free_oldest();  // after the end
  EXPECT_TRUE(r.leaks(2).empty());
  EXPECT_EQ(r.leaks(0)[0].bytes, 8 * 500) << "all were alive when their step ended, the last two as well";
}

TEST(L05_Findings, TheSpikeIsTheLargestShortLivedBlockAtThePeak) {
  Recorder r;
  r.keep("weight", 50'000);
  for (int step = 0; step < 4; ++step) {
    r.begin_step();
    Block* activation = r.get("activation", 20'000);
    r.pass("small", 2000);
    if (step == 2) {
      Block* copy = r.get("copy", 30'000);
      r.pass("smaller", 1000);  // the peak
      r.allocator.free(copy);
    }
    r.allocator.free(activation);
  }
  r.pass("elsewhere", 10'000);  // short-lived and larger than "smaller", but not at the peak
  r.end_program();
  const std::optional<Spike> spike = r.spike(5);
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->name, "copy");
  EXPECT_EQ(spike->op, "forward");
  EXPECT_EQ(spike->step, 2);
  EXPECT_EQ(spike->events, 3u);
  EXPECT_EQ(spike->peak, 50'176 + 20'480 + 30'208 + 1024) << "as allocated: in multiples of 512";
  EXPECT_NEAR(spike->share(), 30'000.0 / 101'888, 1e-12);
  EXPECT_EQ(r.spike(3)->name, "copy") << "at most so many events";
  EXPECT_EQ(r.spike(2)->name, "smaller");
  EXPECT_FALSE(r.spike(0));
}

TEST(L05_Findings, HistoriesWithoutStepsAreQuiet) {
  Recorder r;
  EXPECT_TRUE(r.leaks(2).empty());
  EXPECT_FALSE(r.spike(10));
  r.pass("x", 100);
  EXPECT_TRUE(r.leaks(0).empty());
  EXPECT_EQ(r.spike(10)->step, -1) << "before the first step";
}

// ---- the stream ----

Stream stream_up_to(int64_t longest, int64_t channels) {
  return {.model = {.vocab = 64, .context = longest, .layers = 1, .heads = 2, .channels = channels},
          .batch = 2,
          .shortest = longest / 12,
          .median = longest / 3,
          .longest = longest,
          .spread = 0.5};
}
const Stream kTiny = stream_up_to(48, 32), kSmall = stream_up_to(480, 64);
const Stream kGpt2{.model = transformer_config("gpt2"),
                   .batch = 4,
                   .shortest = 128,
                   .median = 307,
                   .longest = 1024,
                   .spread = 0.5};  // as in the lesson

TEST(L05_Stream, LengthsAreDrawnFromTheSeedWithinTheirBounds) {
  const std::vector<int64_t> a = draw_lengths(kTiny, 2000, 1);
  EXPECT_EQ(a, draw_lengths(kTiny, 2000, 1));
  EXPECT_NE(a, draw_lengths(kTiny, 2000, 2));
  int64_t below = 0;
  for (const int64_t T : a) {
    ASSERT_GE(T, 4);
    ASSERT_LE(T, 48);
    below += T < 16;
  }
  EXPECT_NEAR(double(below), 1000, 100) << "half of them below the median, and 16 itself is neither";
  EXPECT_TRUE(draw_lengths(kTiny, 0, 1).empty());
}

TEST(L05_Stream, EveryDeviceAsksForTheSame) {
  for (const Cure& cure :
       {Cure{.name = "naive"}, Cure{.name = "warmed up", .warmed_up = true},
        Cure{.name = "expandable", .expandable = true}, Cure{.name = "emptied", .empty_every = 2}}) {
    Context meta("meta");
    const StreamRun expected = run_stream(kTiny, cure, 5, 1);
    EXPECT_GT(expected.requests, 0);
    for (const char* name : devices_with_data()) {
      Context context(name);
      const StreamRun run = run_stream(kTiny, cure, 5, 1);
      EXPECT_EQ(run.reserved, expected.reserved) << name << ", " << cure.name;
      EXPECT_EQ(run.peak, expected.peak) << name << ", " << cure.name;
      EXPECT_EQ(run.requests, expected.requests) << name << ", " << cure.name;
      EXPECT_EQ(run.given_back, expected.given_back) << name << ", " << cure.name;
    }
  }
}

// The counts of a run, once more, from the history.
TEST(L05_Stream, RequestsAndWhatIsGivenBackAreThoseOfTheHistory) {
  for (const bool expandable : {false, true}) {
    Context context("meta");
    context.device.allocator().keep_history();
    const StreamRun run = run_stream(kSmall, {.name = "", .expandable = expandable, .empty_every = 3}, 9, 1);
    const std::vector<MemoryEvent>& history = context.device.allocator().history();
    const size_t third_step = step_begins(history, "data").at(2);
    int64_t taken = 0, taken_late = 0, returned = 0, most_reserved = 0;
    MemoryReplay replay;
    for (size_t i = 0; i < history.size(); ++i) {
      const MemoryEvent& e = history[i];
      const int64_t pages = e.bytes / (e.bytes % (20 << 20) ? 2 << 20 : 20 << 20), before = taken;
      if (e.action == Action::SegmentAlloc) ++taken;
      if (e.action == Action::SegmentMap) taken += pages;
      if (e.action == Action::SegmentFree) ++returned;
      if (e.action == Action::SegmentUnmap) returned += pages;
      if (i >= third_step) taken_late += taken - before;
      replay.apply(e);
      most_reserved = std::max(most_reserved, replay.meter.reserved());
    }
    EXPECT_EQ(run.requests, taken);
    EXPECT_EQ(run.late_requests, taken_late);
    EXPECT_EQ(run.given_back, returned);
    EXPECT_EQ(run.reserved, most_reserved);
    EXPECT_LT(replay.meter.reserved(), most_reserved) << "so the figure is not that of the end";
    EXPECT_GT(run.given_back, 0);
    EXPECT_GE(run.requests, run.late_requests);
    EXPECT_GE(run.late_requests, run.repeat_requests);
    EXPECT_GT(run.repeat_requests, 0) << "what was emptied is asked for again";
  }
}

TEST(L05_Stream, TheCacheIsEmptiedAfterSoManySteps) {
  for (const int64_t steps : {2, 3}) {
    Context context("meta");
    const StreamRun run = run_stream(kSmall, {.name = "", .padded = true, .empty_every = 3}, steps, 1);
    EXPECT_EQ(run.given_back > 0, steps == 3) << steps;
  }
  Context context("meta");
  const StreamRun run = run_stream(kSmall, {.name = "", .padded = true, .empty_every = 1}, 5, 1);
  EXPECT_GT(run.late_requests, 0);
  EXPECT_EQ(run.repeat_requests, run.late_requests) << "an equal length is no longer one";
}

TEST(L05_Stream, OnlyABudgetOfTheCureMayEndInOutOfMemory) {
  {
    Context context("meta");
    EXPECT_EQ(run_stream(kSmall, {.name = "card", .budget = 28 << 20}, 5, 1).out_of_memory, 1);
    EXPECT_EQ(context.device.meter().now()[Kind::Weight], 0) << "nothing is left behind";
  }
  EXPECT_EQ(run_on_meta(kSmall, {.name = "card", .budget = 28 << 20}, 5, 1, 3).out_of_memory, 2);
  Context context("meta", 1, 28 << 20);
  EXPECT_THROW(run_stream(kSmall, {.name = "naive"}, 5, 1), OutOfMemory) << "the user's";
}

// A first batch longer than the next ones: its forward pass had memory that the gradients have later.
TEST(L05_Stream, WhatTheFirstStepHadCountsForNoLaterOne) {
  for (const uint64_t seed : {31, 33, 35, 40}) {
    const std::vector<int64_t> T = draw_lengths(kGpt2, 20, seed);
    ASSERT_GT(T[0], T[1]);
    Context context("meta");
    const StreamRun run = run_stream(kGpt2, {.name = "expandable", .expandable = true}, 20, seed);
    EXPECT_GT(run.late_requests, 0);
    EXPECT_EQ(run.repeat_requests, 0) << seed;
  }
}

// The lesson's figures, for streams that the lesson does not draw.
TEST(L05_Stream, EveryCureCures) {
  const auto figures_of = [&](const Cure& cure) { return run_on_meta(kGpt2, cure, 150, 1000, 6); };
  const StreamRun naive = figures_of({.name = "naive"});
  EXPECT_GT(naive.peak.allocated(), int64_t(1) << 30);
  EXPECT_GT(naive.ratio(), 1.2);
  EXPECT_GT(naive.late_requests, 0);
  EXPECT_EQ(naive.given_back, 0);
  const StreamRun padded = figures_of({.name = "padded", .padded = true});
  const StreamRun warm = figures_of({.name = "warmed up", .warmed_up = true});
  const StreamRun expandable = figures_of({.name = "expandable", .expandable = true});
  const StreamRun both = figures_of({.name = "both", .warmed_up = true, .expandable = true});
  const StreamRun emptied = figures_of({.name = "emptied", .empty_every = 1});
  for (const StreamRun* cured : {&padded, &warm, &expandable, &both, &emptied})
    EXPECT_LE(cured->ratio(), 1.1);
  for (const StreamRun* cured : {&padded, &warm, &both}) EXPECT_EQ(cured->late_requests, 0);
  EXPECT_EQ(expandable.repeat_requests, 0);
  EXPECT_GT(emptied.repeat_requests, 1000) << "by its nature";
}

}  // namespace
}  // namespace gradus
