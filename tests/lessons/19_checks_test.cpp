// Every check of lesson 19 passes with right values, and fails with a planted wrong value.
#include <cmath>

#include "lessons/19_tensor_parallel/layer.h"
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

TEST_F(L19_Tables, FailForAWrongLayer) {
  Context context;
  const auto failed = [&](LayerUse (*measure)(const LayerSetting&)) {
    return failed_checks([&](Report& report) { layer_table(path("19_layer.svg"), report, measure); });
  };
  EXPECT_EQ(failed([](const LayerSetting& set) {
              LayerUse use = measure_layer(set);
              use.bytes += set.t == 1 && set.selective;
              return use;
            }),
            Names{"(a) rows where measured differs from paper's count - omitted, of 8"});
  EXPECT_EQ(failed([](const LayerSetting& set) {
              LayerUse use = measure_layer(set);
              use.elements -= set.sequence == Sequence::GatherAgain;
              return use;
            }),
            Names{"(a) rows whose elements sent differ from the prediction, of 8"});
}

TEST(L19_Checks, Ring) {
  struct Ring {
    std::vector<std::vector<int64_t>> pairs{
        {136, 136, 136, 136}, {128, 128, 128, 128}, {128, 128, 128, 128}, {128, 128, 128, 128}};
    int64_t sent = 2 * 128 * 3 + 2 * 128 * 3 + 2 * 128 * 4;
  };
  const Checked failed(Ring{}, [](const Ring& r, Report& report) { check_ring(r.pairs, r.sent, report); });
  EXPECT_EQ(failed([](Ring& r) { ++r.pairs[1][2], --r.pairs[2][3]; }),
            Names{"(b) zigzag: ranks with more or fewer pairs than rank 0 at a step"});
  EXPECT_EQ(failed([](Ring& r) {
              for (int64_t& n : r.pairs[3]) --n;
            }),
            Names{"(b) zigzag: pairs of all ranks and steps, T (T + 1) / 2"});
  for (const int64_t more : {-1, 1})
    EXPECT_EQ(failed([=](Ring& r) { r.sent += more; }),
              Names{"(b) elements sent per rank, 2 n (N-1) + 2 n (N-1) + 2 n N for n = 128, N = 4"});
}

TEST(L19_Checks, WeightsGatheredAgain) {
  Context context;
  const auto failed = [](double weight) {
    TokensRun again = right_run();
    again.weights[0][1] = weight;
    return failed_checks([&](Report& report) { check_gathered_again(right_run(), again, report); });
  };
  EXPECT_EQ(failed(4), Names{});
  for (const double wrong : {std::nextafter(4.0, 5.0), double(NAN)})
    EXPECT_EQ(failed(wrong),
              Names{"sequence parallel: largest difference of weights, gathered again from gathered once"});
}

}  // namespace
}  // namespace gradus
