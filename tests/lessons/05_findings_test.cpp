// Lesson 05: the drawing shows the segments as they are; leaks and spikes are found in histories that have
// some, and in no others.
#include <gtest/gtest.h>

#include <sstream>

#include "lessons/05_allocator/drawing.h"
#include "lessons/05_allocator/findings.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

// L01_Pages compares the example with the lesson's page; tests/memory tests the rules that it shows.
TEST(L05_Drawing, ShowsRequestedBytesRoundingAndFreeMemory) {
  Meter meter;
  Allocator allocator(meta_source(), meter);
  Block* x = allocator.allocate(int64_t(1) << 20, Kind::Other, "x");
  Block* tiny = allocator.allocate(1, Kind::Other, "tiny");
  Block* own = allocator.allocate(int64_t(11) << 20, Kind::Other, "own");
  std::ostringstream out;
  draw_segments(out, allocator);
  EXPECT_EQ(out.str(),
            "    small [xxxxxxxxxxxxxxxxt................] 2.0 MiB\n"
            "    large [ooooooooooo-] 12.0 MiB\n")
      << "each block has at least one character; from 10 MiB on a block has its own segment, a multiple of 2 "
         "MiB";
  for (Block* b : {x, tiny, own}) allocator.free(b);
}

// ---- leaks and spikes, in histories made by hand ----

// A program with steps, whose allocator keeps a history.
struct Recorder {
  Recorder() {
    allocator.take_names_from(ranges);
    allocator.keep_history();
  }
  ~Recorder() {
    for (Block* b : kept) allocator.free(b);
  }
  void begin_step() {
    now("data");
    allocator.free(allocator.allocate(8, Kind::Data, "inputs"));
    now("forward");
  }
  void end_program() { ranges.end(); }
  Block* get(const char* name, int64_t bytes) { return allocator.allocate(bytes, Kind::Temporary, name); }
  void keep(const char* name, int64_t bytes) { kept.push_back(get(name, bytes)); }
  void free_oldest() {
    allocator.free(kept.front());
    kept.erase(kept.begin());
  }
  void now(const char* range) {  // the range that the program is in from now on
    if (!ranges.path().empty()) ranges.end();
    ranges.begin(range);
  }
  void pass(const char* name, int64_t bytes) { allocator.free(get(name, bytes)); }
  std::vector<Leak> leaks(int64_t patience) const {
    return find_leaks(allocator.history(), step_begins(allocator.history(), "data"), patience);
  }
  std::optional<Spike> spike(size_t short_life) const {
    return find_spike(allocator.history(), step_begins(allocator.history(), "data"), short_life);
  }
  Meter meter;
  Ranges ranges;
  Allocator allocator{meta_source(), meter};
  std::vector<Block*> kept;
};

std::string names_of(const std::vector<Leak>& leaks) {
  std::ostringstream out;
  out << "found:";
  for (const Leak& leak : leaks) {
    out << " " << leak.name << " from steps";
    for (const int64_t step : leak.steps) out << " " << step;
    out << ";";
  }
  return out.str();
}

TEST(L05_Findings, WhatStaysStepAfterStepIsALeak) {
  RecordProperty("exercise", "05.2");
  Recorder r;
  r.keep("weight", 4000);
  r.now("forward");
  r.keep("logits", 500);  // before the first step: it belongs to no step
  for (int step = 0; step < 6; ++step) {
    r.begin_step();
    // Allocated in one step only and never freed: no leak, although there are two.
    if (step == 0) r.keep("gradient", 4000), r.keep("gradient", 2000);
    r.pass("activation", 10'000);
    // Twice, but for two different ops: each counts for itself, so neither is a leak.
    if (step == 2) r.now("backward");
    if (step == 1 || step == 2) r.keep("statistics", 50);
    r.now("forward");
    if (step % 2 == 0) r.keep("loss", 4);
    r.keep("logits", 1000);
  }
  r.end_program();
  const std::vector<Leak> leaks = r.leaks(2);
  ASSERT_EQ(leaks.size(), 2u) << names_of(leaks) << " the leaks are logits and loss, and no others";
  EXPECT_EQ(leaks[0].name, "logits") << "the largest leak comes first";
  EXPECT_EQ(leaks[0].op, "forward");
  const int64_t bytes = leaks[0].bytes;
  EXPECT_EQ(bytes, 4000) << "4 of the 6 blocks; those of the last two steps may still be freed in time"
                         << usual_mistake(
                                {{bytes == 5000, "a block is judged one step too early"},
                                 {bytes == 3000,
                                  "blocks whose last step of patience ends with the program are not judged"},
                                 {bytes == 1000, "the leak has the bytes of one of its blocks, not of all"}});
  EXPECT_EQ(leaks[0].steps, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(leaks[1].name, "loss");
  EXPECT_EQ(leaks[1].steps, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(r.leaks(0)[0].bytes, 6000);
  EXPECT_TRUE(r.leaks(5).empty()) << "only the block of one step can be judged, and one step is no leak";
}

TEST(L05_Findings, BlocksThatAreFreedInTimeAreNoLeak) {
  Recorder r;
  // Each block lives for two steps, as the state of a recurrent network does.
  for (int step = 0; step < 8; ++step) {
    r.begin_step();
    r.keep("state", 500);
    if (step >= 2) r.free_oldest();
    r.pass("activation", 10'000);
  }
  r.end_program();
  EXPECT_TRUE(r.leaks(2).empty());
  EXPECT_EQ(r.leaks(1).size(), 1u) << "with too little patience it counts as a leak";
  for (int step = 6; step < 8; ++step) r.free_oldest();  // after the last step
  EXPECT_TRUE(r.leaks(2).empty());
  EXPECT_EQ(r.leaks(0)[0].bytes, 8 * 500) << "all blocks were alive when their step ended, also the last two";
}

TEST(L05_Findings, TheFirstEventOfAStepBelongsToIt) {
  Recorder r;
  for (int step = 0; step < 2; ++step) {
    r.now("data");
    r.keep("inputs", 100);
    r.now("forward");
    r.pass("activation", 1000);
  }
  r.end_program();
  const std::vector<Leak> leaks = r.leaks(0);
  ASSERT_EQ(leaks.size(), 1u);
  EXPECT_EQ(leaks[0].steps, (std::vector<int64_t>{0, 1}));
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
      r.pass("smaller", 1000);  // reaches the peak
      r.allocator.free(copy);
    }
    r.allocator.free(activation);
  }
  r.pass("elsewhere", 10'000);  // short-lived and larger than "smaller", but not alive at the peak
  r.end_program();
  const std::optional<Spike> spike = r.spike(5);
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->name, "copy");
  EXPECT_EQ(spike->op, "forward");
  EXPECT_EQ(spike->step, 2);
  EXPECT_EQ(spike->events, 3u);
  EXPECT_EQ(spike->peak, 50'176 + 20'480 + 30'208 + 1024)
      << "the peak counts allocated bytes, multiples of 512";
  EXPECT_NEAR(spike->share(), 30'000.0 / 101'888, 1e-12);
  EXPECT_EQ(r.spike(3)->name, "copy")
      << "a block that lives for exactly this number of events is short-lived";
  EXPECT_EQ(r.spike(2)->name, "smaller");
  EXPECT_FALSE(r.spike(0));
}

TEST(L05_Findings, HistoriesWithoutStepsHaveNoLeaks) {
  Recorder r;
  EXPECT_TRUE(r.leaks(2).empty());
  EXPECT_FALSE(r.spike(10));
  r.pass("x", 100);
  EXPECT_TRUE(r.leaks(0).empty());
  EXPECT_EQ(r.spike(10)->step, -1) << "before the first step";
}

}  // namespace
}  // namespace gradus
