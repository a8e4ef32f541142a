// Every check of lesson 19 passes with right values, and fails with a planted wrong value.
#include <cmath>

#include "lessons/19_tensor_parallel/layer.h"
#include "lessons/19_tensor_parallel/ring.h"
#include "lessons/19_tensor_parallel/runs.h"
#include "tests/folder_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TokensRun right_run() {
  TokensRun run;
  run.weights = run.first_gradients = {{3, 4}, {5}};
  run.shards = {std::nullopt, std::nullopt};
  run.losses = {2, 1}, run.loss = 1, run.seconds = {0.1};
  return run;
}
Names failed(By by, const std::function<void(int64_t rank, TokensRun&)>& plant) {
  Context context;
  RanksArgs args;
  ParallelTask task;
  task.steps = 2;
  return failed_checks([&](Report& report) {
    Compared compared(args, task, report);
    compared.with("run", 2, by, right_run(), [&](Comm& comm) {
      TokensRun run = right_run();
      plant(comm.rank(), run);
      return run;
    });
    compared.report("ranks", 1e-5);
  });
}

const Names kUnlike{"ranks, AdamW: parameters that differ bitwise from the single-device run"},
    kExact{"ranks, AdamW: largest difference of a loss from the single-device run"},
    kNear{"ranks, SGD: largest difference of a loss from plain training"},
    kGradients{"ranks, SGD: largest relative difference of a gradient, first step"};

TEST(L19_Checks, RunsOfEveryRank) {
  for (const By by : {By::AdamW, By::Sgd}) EXPECT_EQ(failed(by, [](int64_t, TokensRun&) {}), Names{});
  for (const int64_t wrong : {0, 1}) {
    const auto planted = [&](By by, const std::function<void(TokensRun&)>& plant) {
      return failed(by, [&](int64_t rank, TokensRun& run) {
        if (rank == wrong) plant(run);
      });
    };
    EXPECT_EQ(planted(By::AdamW, [](TokensRun& r) { r.weights[1][0] = std::nextafter(5.0, 6.0); }), kUnlike);
    EXPECT_EQ(planted(By::AdamW, [](TokensRun& r) { r.weights.pop_back(); }), kUnlike);
    EXPECT_EQ(planted(By::AdamW, [](TokensRun& r) { r.losses[0] = std::nextafter(2.0, 3.0); }), kExact);
    EXPECT_EQ(planted(By::AdamW, [](TokensRun& r) { r.losses.pop_back(); }), kExact);
    EXPECT_EQ(planted(By::Sgd, [](TokensRun& r) { r.losses[1] += 2e-6; }), kNear);
    EXPECT_EQ(planted(By::Sgd, [](TokensRun& r) { r.losses[1] = NAN; }), kNear);
    EXPECT_EQ(planted(By::Sgd, [](TokensRun& r) { r.losses[1] += 9e-7; }), Names{});
    EXPECT_EQ(planted(By::Sgd, [](TokensRun& r) { r.weights = {}; }), Names{})
        << "a check compared the weights of an SGD run";
    EXPECT_EQ(planted(By::Sgd, [](TokensRun& r) { r.first_gradients[0][0] += 6e-5; }), kGradients)
        << "the gradient has norm 5, so the relative difference is 1.2e-5, above the bound of 1e-5";
    EXPECT_EQ(planted(By::Sgd, [](TokensRun& r) { r.first_gradients[0][0] += 4e-5; }), Names{});
    EXPECT_EQ(planted(By::Sgd, [](TokensRun& r) { r.first_gradients.pop_back(); }), kGradients);
  }
}

TEST(L19_Checks, APartIsComparedWithItsPartOfTheWhole) {
  const auto second_row = [](double value) {
    return failed(By::AdamW, [&](int64_t, TokensRun& run) {
      run.weights[0] = {value};
      run.shards[0] = Shard::of_rows({2, 1}, 1, 1);
    });
  };
  EXPECT_EQ(second_row(4), Names{});
  EXPECT_EQ(second_row(3), kUnlike);
}

struct L19_Tables : FolderTest {};
TEST_F(L19_Tables, HoldAsMeasured) {
  Context context;
  EXPECT_EQ(failed_checks([&](Report& report) { layer_table(path("19_layer.svg"), report); }), Names{});
  EXPECT_NE(read("19_layer.svg").find("<svg"), std::string::npos);
  EXPECT_EQ(failed_checks([](Report& report) { ring_table(report); }), Names{});
}

}  // namespace
}  // namespace gradus
