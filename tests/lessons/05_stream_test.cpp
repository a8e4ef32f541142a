// Lesson 05: the stream's figures hold for other streams. That every device asks for the same is checked by
// the lesson itself (L05_Program).
#include "lessons/05_allocator/stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lessons/05_allocator/findings.h"

namespace gradus {
namespace {

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
  EXPECT_EQ(std::vector<int64_t>(a.begin(), a.begin() + 10), draw_lengths(kTiny, 10, 1))
      << "a short run begins as a long one";
  int64_t below = 0;
  for (const int64_t T : a) {
    ASSERT_GE(T, 4);
    ASSERT_LE(T, 48);
    below += T < 16;
  }
  EXPECT_NEAR(double(below), 1000, 100) << "half of them below the median, and 16 itself is neither";
  EXPECT_TRUE(draw_lengths(kTiny, 0, 1).empty());
}

// The counts of a run, once more, from the history. Of 8 steps the last does not end with the cache emptied.
TEST(L05_Stream, RequestsAndWhatIsGivenBackAreThoseOfTheHistory) {
  for (const auto& [expandable, steps] : {std::pair(false, 9), {true, 9}, {true, 8}}) {
    Context context("meta");
    context.device.allocator().keep_history();
    const Cure cure{.name = "", .expandable = expandable, .empty_every = 3};
    const StreamRun run = run_stream(kSmall, cure, steps, 3);
    const std::vector<MemoryEvent>& history = context.device.allocator().history();
    const std::vector<int64_t> T = draw_lengths(kSmall, steps, 3);
    const std::vector<size_t> begins = step_begins(history, "data");
    int64_t taken = 0, taken_late = 0, taken_again = 0, returned = 0, most_reserved = 0;
    MemoryReplay replay;
    for (size_t i = 0; i < history.size(); ++i) {
      const MemoryEvent& e = history[i];
      const int64_t pages = e.bytes / (e.bytes % (20 << 20) ? 2 << 20 : 20 << 20), before = taken;
      if (e.action == Action::SegmentAlloc) ++taken;
      if (e.action == Action::SegmentMap) taken += pages;
      if (e.action == Action::SegmentFree) ++returned;
      if (e.action == Action::SegmentUnmap) returned += pages;
      const int64_t step = std::upper_bound(begins.begin(), begins.end(), i) - begins.begin() - 1;
      if (step >= 2) taken_late += taken - before;
      if (step >= 2 && step < steps && T[step] <= *std::max_element(T.begin() + 1, T.begin() + step))
        taken_again += taken - before;
      replay.apply(e);
      most_reserved = std::max(most_reserved, replay.meter.reserved());
    }
    EXPECT_EQ(run.requests, taken);
    EXPECT_EQ(run.late_requests, taken_late);
    EXPECT_EQ(run.repeat_requests, taken_again);
    EXPECT_EQ(run.given_back, returned);
    EXPECT_EQ(run.reserved, most_reserved);
    if (steps == 9) {
      EXPECT_LT(replay.meter.reserved(), most_reserved) << "so the figure is not that of the end";
    }
    EXPECT_GT(run.given_back, 0);
    EXPECT_GE(run.requests, run.late_requests);
    EXPECT_GT(run.repeat_requests, 0) << "what was emptied is asked for again";
    EXPECT_GT(run.late_requests, run.repeat_requests) << "and a longer batch needs more";
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

TEST(L05_Stream, PaddedBatchesAreAsLongAsTheLongest) {
  Stream longest = kSmall;
  longest.shortest = longest.longest;
  const StreamRun padded = run_on_meta(kSmall, {.name = "padded", .padded = true}, 3, 1, 1),
                  expected = run_on_meta(longest, {.name = "naive"}, 3, 1, 1);
  EXPECT_EQ(padded.peak, expected.peak);
  EXPECT_EQ(padded.reserved, expected.reserved);
}

TEST(L05_Stream, OfSeveralStreamsTheWorstOfEachFigureCounts) {
  const Cure cure{.name = "emptied", .empty_every = 2};
  const auto run = [&](uint64_t seed, uint64_t streams) {
    return run_on_meta(kSmall, cure, 7, seed, streams);
  };
  const StreamRun all = run(1, 4);
  double ratio = 0;
  int64_t requests = 0, late = 0, repeat = 0, given_back = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const StreamRun one = run(seed, 1);
    ratio = std::max(ratio, one.ratio());
    requests = std::max(requests, one.requests);
    late = std::max(late, one.late_requests);
    repeat = std::max(repeat, one.repeat_requests);
    given_back = std::max(given_back, one.given_back);
  }
  EXPECT_EQ(all.ratio(), ratio);
  EXPECT_EQ(all.requests, requests);
  EXPECT_EQ(all.late_requests, late);
  EXPECT_EQ(all.repeat_requests, repeat);
  EXPECT_EQ(all.given_back, given_back);
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

}  // namespace
}  // namespace gradus
