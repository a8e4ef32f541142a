// The checks of lesson 05: right values pass, and each wrong value fails its own check.
#include "lessons/05_allocator/checks.h"

#include <gtest/gtest.h>

#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

constexpr int64_t kGiB = int64_t(1) << 30;

WorkloadRun run_of(int64_t allocated, double ratio) {
  WorkloadRun run;
  run.peak.by_kind[int(Kind::Activation)] = allocated;
  run.reserved = int64_t(double(allocated) * ratio);
  return run;
}

TEST(L05_Checks, Naive) {
  const auto failed = [](int64_t allocated, double ratio, int64_t device_frees, int64_t steps = 100) {
    WorkloadRun limited;
    limited.device_frees = device_frees;
    return failed_checks([&](Report& r) { check_naive(run_of(allocated, ratio), limited, steps, r); });
  };
  EXPECT_EQ(failed(kGiB, 1.11, 1), Names{});
  EXPECT_EQ(failed(kGiB - 1, 1.11, 1), Names{"naive: peak allocated, bytes"});
  EXPECT_EQ(failed(kGiB, 1.09, 1), Names{"naive: fragmentation (reserved / allocated)"});
  EXPECT_EQ(failed(kGiB, 1.11, 0), Names{"naive, 8 GiB GPU: device frees"});
  EXPECT_EQ(failed(kGiB, 1, 0, 99), Names{}) << "99 steps: long batches may not have come yet";
}

TEST(L05_Checks, Cures) {
  const auto failed = [](const Cure& cure, double ratio, int64_t late, int64_t repeat, int64_t steps = 100) {
    WorkloadRun run = run_of(1000, ratio);
    run.late_allocations = late, run.repeat_allocations = repeat;
    return failed_checks([&](Report& r) { check_cure(cure, run, steps, r); });
  };
  const Cure padded{.name = "x", .padded = true}, warm{.name = "x", .warmed_up = true},
      expandable{.name = "x", .expandable = true}, both{.name = "x", .warmed_up = true, .expandable = true},
      emptied{.name = "x", .empty_every = 1};
  const Names ratio{"x: fragmentation (reserved / allocated)"}, late{"x: device allocations after step 2"},
      repeat{"x: device allocations while the batch is not longer"};
  for (const Cure& c : {padded, warm, both}) {
    EXPECT_EQ(failed(c, 1.1, 0, 9), Names{});
    EXPECT_EQ(failed(c, 1.101, 0, 9), ratio);
    EXPECT_EQ(failed(c, 9, 0, 9, 99), Names{});
    EXPECT_EQ(failed(c, 1.1, 1, 0, 1), late);
  }
  EXPECT_EQ(failed(expandable, 1.15, 9, 4), Names{});
  EXPECT_EQ(failed(expandable, 1.151, 9, 4), ratio);
  EXPECT_EQ(failed(expandable, 1, 9, 5), repeat);
  EXPECT_EQ(failed(emptied, 1.1, 9, 9), Names{});
  EXPECT_EQ(failed(emptied, 1.101, 9, 9), ratio);
}

TEST(L05_Checks, OnMetaAsOnTheDevice) {
  const auto failed = [](int64_t reserved, int64_t allocations) {
    WorkloadRun right, wrong;
    right.reserved = wrong.reserved = 100, right.device_allocations = wrong.device_allocations = 7;
    wrong.reserved += reserved, wrong.device_allocations += allocations;
    return failed_checks([&](Report& r) { check_small({{right, right}, {right, wrong}}, r); });
  };
  EXPECT_EQ(failed(0, 0), Names{});
  for (const int64_t difference : {-1, 1}) {
    EXPECT_EQ(failed(difference, 0),
              Names{"small: runs whose reserved bytes or device allocations differ on meta"});
    EXPECT_EQ(failed(0, difference),
              Names{"small: runs whose reserved bytes or device allocations differ on meta"});
  }
}

TEST(L05_Checks, FindingsOfTheHistory) {
  const Leak leak{"wte.weight.grad", "backward/linear", 1, {0, 1}}, other{"wpe.weight.grad", "", 1, {0, 1}};
  const Spike spike{"differences", "between/debug", 25, 100, 5, 1}, small{"gradient", "", 24, 100, 5, 1},
      early{"differences", "", 25, 100, 4, 1}, unknown{"gradient", "", 25, 100, 5, 1};
  const auto clean = [](const Found& f) { return failed_checks([&](Report& r) { check_clean(f, r); }); };
  EXPECT_EQ(clean({{}, {}}), Names{});
  EXPECT_EQ(clean({{}, small}), Names{});
  EXPECT_EQ(clean({{leak}, small}), Names{"without faults: leaks found"});
  EXPECT_EQ(clean({{}, spike}), Names{"without faults: spikes found"});
  const auto faults = [](const Found& f) { return failed_checks([&](Report& r) { check_faults(f, 5, r); }); };
  const Names no_leak{"with two faults: leak of wte.weight.grad found"},
      no_spike{"with two faults: spike 'differences' found"};
  EXPECT_EQ(faults({{leak}, spike}), Names{});
  EXPECT_EQ(faults({{}, spike}), no_leak);
  EXPECT_EQ(faults({{other}, spike}), no_leak);
  EXPECT_EQ(faults({{leak, other}, spike}), no_leak);
  EXPECT_EQ(faults({{leak}, {}}), no_spike);
  for (const Spike& wrong : {small, early, unknown}) EXPECT_EQ(faults({{leak}, wrong}), no_spike);
}

}  // namespace
}  // namespace gradus
