// What a training loop records for its row of the report.
#include "src/train/step_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "src/tensor/tensor.h"

namespace gradus {
namespace {

// Steps that take 1 ms, except for one of 100 ms.
TEST(L03_StepRecorder, TimesAreOfTheMedianStepAndNothingBetweenSteps) {
  Context context("cpu", 1);
  StepRecorder recorder;
  const auto wait = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  for (int step = 0; step < 5; ++step) {
    wait(30);
    recorder.begin();
    wait(step == 1 ? 100 : 1);
    recorder.end(5 - step);
  }
  ASSERT_EQ(recorder.seconds.size(), 5u);
  for (int step = 0; step < 5; ++step) EXPECT_GE(recorder.seconds[step], step == 1 ? 0.1 : 0.001);
  EXPECT_GE(recorder.total_seconds(), 0.104);
  ReportRow row;
  recorder.fill(row, 64);
  EXPECT_TRUE(*row.ms_per_step >= 1 && *row.ms_per_step < 30) << *row.ms_per_step;
  EXPECT_NEAR(*row.tokens_per_s, 64 / (*row.ms_per_step * 1e-3), 1e-6);
  EXPECT_EQ(row.loss_first, 5);
  EXPECT_EQ(row.loss_last, 3) << "the mean of the last 50, or of all";
}

TEST(L03_StepRecorder, TheRecentLossIsTheMeanOfFifty) {
  Context context("cpu", 1);
  StepRecorder recorder;
  for (int step = 0; step < 60; ++step) recorder.begin(), recorder.end(step < 10 ? 1000 : step % 2);
  EXPECT_EQ(recorder.recent_loss(), 0.5);
  recorder.begin(), recorder.end(25);
  EXPECT_EQ(recorder.recent_loss(), (25 + 25) / 50.0);
  EXPECT_EQ(recorder.losses.size(), 61u);
}

// Allocations after the last step do not belong to the steps.
TEST(L03_StepRecorder, BytesAndRequestsAreThoseOfTheSteps) {
  Context context("cpu", 1);
  const auto use = [&](int64_t n) { Tensor(context.device, {n}, DType::F32, Kind::Activation, "x"); };
  StepRecorder recorder;
  for (const int64_t n : {1 << 20, 1 << 24, 1 << 20}) recorder.begin(), use(n), recorder.end();
  use(1 << 26);
  EXPECT_EQ(recorder.peak[Kind::Activation], 4 << 24);
  EXPECT_LT(recorder.reserved, context.device.meter().peak_reserved());
  EXPECT_LT(recorder.requests[0], recorder.requests[1]);
  EXPECT_EQ(recorder.requests[1], recorder.requests[2]);
  ReportRow row;
  recorder.fill(row, 1);
  EXPECT_EQ(row.peak->by_kind, recorder.peak.by_kind);
  EXPECT_EQ(row.reserved_bytes, recorder.reserved);
  EXPECT_FALSE(row.loss_first || row.loss_last) << "no loss was given";
}

}  // namespace
}  // namespace gradus
