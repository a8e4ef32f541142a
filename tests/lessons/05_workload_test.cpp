// Lesson 05: lengths, counts and cures of workloads. The lesson itself checks that every device makes the
// same allocations (L05_Program).
#include "lessons/05_allocator/workload.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lessons/05_allocator/findings.h"

namespace gradus {
namespace {

Workload workload_up_to(int64_t longest, int64_t channels) {
  return {.model = {.vocab = 64, .context = longest, .layers = 1, .heads = 2, .channels = channels},
          .batch = 2,
          .shortest = longest / 12,
          .median = longest / 3,
          .longest = longest,
          .spread = 0.5};
}
const Workload kTiny = workload_up_to(48, 32), kSmall = workload_up_to(480, 64);
const Workload kGpt2{.model = transformer_config("gpt2"),
                     .batch = 4,
                     .shortest = 128,
                     .median = 307,
                     .longest = 1024,
                     .spread = 0.5};  // as in the lesson

TEST(L05_Workload, LengthsAreDrawnFromTheSeedWithinTheirBounds) {
  const std::vector<int64_t> a = draw_lengths(kTiny, 2000, 1);
  EXPECT_EQ(a, draw_lengths(kTiny, 2000, 1));
  EXPECT_NE(a, draw_lengths(kTiny, 2000, 2));
  EXPECT_EQ(std::vector<int64_t>(a.begin(), a.begin() + 10), draw_lengths(kTiny, 10, 1))
      << "a short run has the first lengths of a long run";
  int64_t below = 0;
  for (const int64_t T : a) {
    ASSERT_GE(T, 4);
    ASSERT_LE(T, 48);
    below += T < 16;
  }
  EXPECT_NEAR(double(below), 1000, 100)
      << "half of the lengths are below the median, apart from those equal to 16";
  EXPECT_TRUE(draw_lengths(kTiny, 0, 1).empty());
}

// Counts the allocations again, from the history. With 8 steps the cache is not emptied after the last step.
TEST(L05_Workload, DeviceAllocationsAndFreesAreThoseOfTheHistory) {
  for (const auto& [expandable, steps] : {std::pair(false, 9), {true, 9}, {true, 8}}) {
    Context context("meta");
    context.device.allocator().keep_history();
    const Cure cure{.name = "", .expandable = expandable, .empty_every = 3};
    const WorkloadRun run = run_workload(kSmall, cure, steps, 3);
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
    EXPECT_EQ(run.device_allocations, taken);
    EXPECT_EQ(run.late_allocations, taken_late);
    EXPECT_EQ(run.repeat_allocations, taken_again);
    EXPECT_EQ(run.device_frees, returned);
    EXPECT_EQ(run.reserved, most_reserved);
    if (steps == 9) {
      EXPECT_LT(replay.meter.reserved(), most_reserved) << "so run.reserved is not the value at the end";
    }
    EXPECT_GT(run.device_frees, 0);
    EXPECT_GE(run.device_allocations, run.late_allocations);
    EXPECT_GT(run.repeat_allocations, 0) << "after the cache is emptied, segments are allocated again";
    EXPECT_GT(run.late_allocations, run.repeat_allocations) << "and a longer batch needs more segments";
  }
}

TEST(L05_Workload, TheCacheIsEmptiedAfterEveryThirdStep) {
  for (const int64_t steps : {2, 3}) {
    Context context("meta");
    const WorkloadRun run = run_workload(kSmall, {.name = "", .padded = true, .empty_every = 3}, steps, 1);
    EXPECT_EQ(run.device_frees > 0, steps == 3) << steps;
  }
  Context context("meta");
  const WorkloadRun run = run_workload(kSmall, {.name = "", .padded = true, .empty_every = 1}, 5, 1);
  EXPECT_GT(run.late_allocations, 0);
  EXPECT_EQ(run.repeat_allocations, run.late_allocations) << "a batch of equal length is not longer";
}

TEST(L05_Workload, PaddedBatchesAreAsLongAsTheLongest) {
  Workload longest = kSmall;
  longest.shortest = longest.longest;
  const WorkloadRun padded = run_on_meta(kSmall, {.name = "padded", .padded = true}, 3, 1, 1),
                    expected = run_on_meta(longest, {.name = "naive"}, 3, 1, 1);
  EXPECT_EQ(padded.peak, expected.peak);
  EXPECT_EQ(padded.reserved, expected.reserved);
}

TEST(L05_Workload, OfSeveralSeedsTheLargestValueOfEachCountIsReported) {
  const Cure cure{.name = "emptied", .empty_every = 2};
  const auto run = [&](uint64_t seed, uint64_t workloads) {
    return run_on_meta(kSmall, cure, 7, seed, workloads);
  };
  const WorkloadRun all = run(1, 4);
  double ratio = 0;
  int64_t allocations = 0, late = 0, repeat = 0, frees = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const WorkloadRun one = run(seed, 1);
    ratio = std::max(ratio, one.ratio());
    allocations = std::max(allocations, one.device_allocations);
    late = std::max(late, one.late_allocations);
    repeat = std::max(repeat, one.repeat_allocations);
    frees = std::max(frees, one.device_frees);
  }
  EXPECT_EQ(all.ratio(), ratio);
  EXPECT_EQ(all.device_allocations, allocations);
  EXPECT_EQ(all.late_allocations, late);
  EXPECT_EQ(all.repeat_allocations, repeat);
  EXPECT_EQ(all.device_frees, frees);
}

TEST(L05_Workload, OnlyTheBudgetOfACureMayEndARunOutOfMemory) {
  {
    Context context("meta");
    EXPECT_EQ(run_workload(kSmall, {.name = "limited", .budget = 28 << 20}, 5, 1).out_of_memory, 1);
    EXPECT_EQ(context.device.meter().now()[Kind::Weight], 0) << "the run frees its weights";
  }
  EXPECT_EQ(run_on_meta(kSmall, {.name = "limited", .budget = 28 << 20}, 5, 1, 3).out_of_memory, 2);
  Context context("meta", 1, 28 << 20);
  EXPECT_THROW(run_workload(kSmall, {.name = "naive"}, 5, 1), OutOfMemory) << "the user's limit is an error";
}

// The first batch is longer than the next ones: its forward pass used memory that the gradients take later.
TEST(L05_Workload, TheLengthOfTheFirstBatchDoesNotCountAsAnEarlierOne) {
  for (const uint64_t seed : {31, 33, 35, 40}) {
    const std::vector<int64_t> T = draw_lengths(kGpt2, 20, seed);
    ASSERT_GT(T[0], T[1]);
    Context context("meta");
    const WorkloadRun run = run_workload(kGpt2, {.name = "expandable", .expandable = true}, 20, seed);
    EXPECT_GT(run.late_allocations, 0);
    EXPECT_EQ(run.repeat_allocations, 0) << seed;
  }
}

}  // namespace
}  // namespace gradus
