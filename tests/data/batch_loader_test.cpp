// Batches made ahead, on every device: the step's tensors hold what `fill` wrote for the step.
#include <gtest/gtest.h>

#include <atomic>

#include "src/core/rng.h"
#include "src/data/batch_loader.h"
#include "src/tensor/context.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Ids = std::vector<int32_t>;
constexpr int64_t kB = 3, kT = 5;

Ids ids_of(int64_t step, int64_t stream) {
  Rng rng(9, uint64_t(stream), uint64_t(step * kB * kT));
  Ids ids;
  for (int64_t i = 0; i < kB * kT; ++i) ids.push_back(int32_t(rng.bits64() >> 40));
  return ids;
}
void fill(int64_t step, int64_t, int32_t* inputs, int32_t* targets) {
  std::ranges::copy(ids_of(step, 0), inputs);
  std::ranges::copy(ids_of(step, 1), targets);
}

struct L14_BatchLoader : ::testing::TestWithParam<const char*> {
  Context context{GetParam()};
};
ON_DEVICES_WITH_DATA(L14_BatchLoader);

TEST_P(L14_BatchLoader, GivesEachStepItsBatch) {
  for (const int64_t workers : {0, 1, 2, 4}) {
    BatchLoader batches(kB, kT, workers, fill);
    for (int64_t step = 0; step < 20; ++step) {
      const TokenBatch& batch = batches.next();
      ASSERT_EQ(batch.inputs.shape(), (Shape{kB, kT}));
      ASSERT_EQ(batch.targets.shape(), (Shape{kB, kT}));
      ASSERT_EQ(to_host<int32_t>(batch.inputs), ids_of(step, 0)) << workers << " workers, step " << step;
      ASSERT_EQ(to_host<int32_t>(batch.targets), ids_of(step, 1)) << workers << " workers, step " << step;
    }
  }
}

TEST_P(L14_BatchLoader, ABatchStaysAsItIsUntilTheNext) {
  std::atomic<int64_t> filled = 0;
  BatchLoader batches(kB, kT, 1, [&](int64_t step, int64_t worker, int32_t* inputs, int32_t* targets) {
    fill(step, worker, inputs, targets), ++filled;
  });
  for (int64_t step = 0; step < 6; ++step) {
    const TokenBatch& batch = batches.next();
    while (filled < step + 4) std::this_thread::yield();  // the worker has made all the batches that it may
    ASSERT_EQ(to_host<int32_t>(batch.inputs), ids_of(step, 0)) << step;
  }
}

TEST_P(L14_BatchLoader, AsksForMemoryOnceOfKindData) {
  BatchLoader batches(kB, kT, 2, fill);
  const auto bytes = [](const Meter& meter) { return meter.now()[Kind::Data]; };
  EXPECT_EQ(bytes(context.device.meter()), 2 * 2 * kB * kT * 4);  // inputs and targets of two batches
  EXPECT_EQ(bytes(batches.host().meter()), (2 * 2 + 1) * 2 * kB * kT * 4);  // two per worker, and one
  const int64_t requests = context.device.meter().device_requests();
  for (int64_t step = 0; step < 10; ++step) batches.next();
  EXPECT_EQ(bytes(context.device.meter()), 2 * 2 * kB * kT * 4);
  EXPECT_EQ(context.device.meter().device_requests(), requests);
}

TEST_P(L14_BatchLoader, WhatFillThrowsReachesTheLoopAtThatStepOrTheOneBefore) {
  for (const int64_t workers : {0, 1, 3}) {
    BatchLoader batches(kB, kT, workers, [](int64_t step, int64_t worker, int32_t* inputs, int32_t* targets) {
      check(step < 4, "the text of step ", step, " is gone");
      fill(step, worker, inputs, targets);
    });
    for (int64_t step = 0; step < 3; ++step) batches.next();
    for (int i = 0; i < 2; ++i) expect_refused("the text of step 4 is gone", [&] { batches.next(); });
  }
}

TEST_P(L14_BatchLoader, TwoOfThemAlternate) {
  BatchLoader a(kB, kT, 2, fill);
  BatchLoader b(kB, kT, 1, [](int64_t step, int64_t worker, int32_t* inputs, int32_t* targets) {
    fill(step + 100, worker, inputs, targets);
  });
  for (int64_t step = 0; step < 5; ++step) {
    const TokenBatch &of_a = a.next(), &of_b = b.next();
    ASSERT_EQ(to_host<int32_t>(of_a.inputs), ids_of(step, 0));
    ASSERT_EQ(to_host<int32_t>(of_b.inputs), ids_of(step + 100, 0));
  }
}

TEST_P(L14_BatchLoader, IsOfTheContextThatItWasMadeIn) {
  BatchLoader batches(kB, kT, 1, fill);
  const TokenBatch* batch = &batches.next();
  {
    Context other(GetParam());
    BatchLoader others(kB, kT, 1, fill);
    others.next();
  }
  EXPECT_EQ(to_host<int32_t>(batch->inputs), ids_of(0, 0));
  batch = &batches.next();
  EXPECT_EQ(&batch->inputs.device(), &context.device);
}

// In the way in which a captured step rejects it: the call can be repeated, and no batch is lost.
TEST_P(L14_BatchLoader, AfterACopyThatWasRefusedTheSameBatchComes) {
  for (const int64_t workers : {0, 2}) {
    BatchLoader batches(kB, kT, workers, fill);
    for (int64_t step = 0; step < 6; ++step) {
      if (step % 2 == 0) {
        Context other(GetParam());
        EXPECT_NE(refusal([&] { batches.next(); }), "") << "its tensors belong to a different context";
      }
      ASSERT_EQ(to_host<int32_t>(batches.next().inputs), ids_of(step, 0))
          << workers << " workers, step " << step;
    }
  }
}

TEST_P(L14_BatchLoader, TheTimeOfTheCallIsInTheRangeData) {
  struct Paths : RangeListener {
    std::vector<std::string> open, seen;
    void began(size_t depth, const char* name) override {
      open.resize(depth);
      open.push_back(name);
      if (std::string(name) == "copy to the device") seen.push_back(open.front());
    }
    void ended(size_t) override {}
  } paths;
  BatchLoader batches(kB, kT, 1, fill);
  context.ranges.add(paths);
  batches.next();
  context.ranges.remove(paths);
  EXPECT_EQ(paths.seen, (std::vector<std::string>(2, "data")));  // for two batches
}

TEST(L14_BatchLoaderSizes, RefusesEmptyBatchesAndImpossibleWorkers) {
  Context context;
  for (const auto& [B, T] : {std::pair(0, 5), {3, 0}, {-1, 5}})
    expect_refused("batch loader: batches of", [&, B = B, T = T] { BatchLoader(B, T, 1, fill); });
  for (const int64_t workers : {-1, 2000})
    expect_refused("prefetch: ", [&] { BatchLoader(kB, kT, workers, fill); });
}

TEST(L14_BatchLoaderSizes, WorksOnMetaToo) {
  Context context("meta");
  BatchLoader batches(kB, kT, 2, fill);
  EXPECT_EQ(batches.next().inputs.shape(), (Shape{kB, kT}));
}

}  // namespace
}  // namespace gradus
