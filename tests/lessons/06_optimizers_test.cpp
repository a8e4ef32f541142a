// Lesson 06's results: the bytes of the optimizers' states, the best run, the spread over seeds, the checks.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "lessons/06_optimizers/contenders.h"
#include "lessons/06_optimizers/update_time.h"
#include "src/nn/transformer.h"
#include "src/train/race.h"
#include "tests/lessons/published_testing.h"
#include "tests/lessons/report_testing.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

TEST(L06_Contenders, StateBytesAreTheMeters) {
  RecordProperty("exercise", "06.3");
  TransformerConfig configs[] = {{.vocab = 37, .context = 9, .layers = 3, .heads = 3, .channels = 21},
                                 transformer_config("bert-base"),
                                 transformer_config("polyglot-ko-1.3b")};
  configs[1].labels = 2;
  for (const TransformerConfig& config : configs)
    for (const Contender& c : contenders()) {
      Context meta("meta");
      Transformer model(config);
      const auto optimizer = c.make(model.parameters);
      EXPECT_EQ(state_bytes(c.name, model.parameters), meta.device.meter().now()[Kind::Optimizer]) << c.name;
    }
}

// Bytes per parameter: SGD 0, momentum 4, AdamW 8, Adafactor far below 1, Muon 4 on matrices of blocks.
TEST(L06_Contenders, StateBytesOfOneParameter) {
  RecordProperty("exercise", "06.3");
  const auto bytes = [](const char* name, bool in_block) { return state_bytes(name, 100, 30, in_block); };
  EXPECT_EQ(bytes("SGD", true), 0);
  EXPECT_EQ(bytes("momentum", true), 4 * 3000);
  EXPECT_EQ(bytes("Nesterov", false), 4 * 3000);
  EXPECT_EQ(bytes("AdamW", true), 8 * 3000) << usual_mistake(
      {{bytes("AdamW", true) == 4 * 3000, "AdamW has two moments, and your formula counts one of them"}});
  EXPECT_EQ(bytes("Adafactor", true), 4 * 130)
      << usual_mistake({{bytes("Adafactor", true) == 4 * 3000,
                         "Adafactor keeps one number per row and per column, not one per weight"}});
  EXPECT_EQ(bytes("Adafactor, given", false), 4 * 130);
  EXPECT_EQ(bytes("Muon", true), 4 * 3000);
  EXPECT_EQ(bytes("Muon", false), 8 * 3000);
  const int64_t of_a_vector = state_bytes("Adafactor", 1, 30, false);
  EXPECT_EQ(of_a_vector, 4 * 30) << usual_mistake(
      {{of_a_vector == 4 * 31, "a vector is taken for a matrix: Adafactor keeps no row mean of a vector"}});
}

Trial trial(double rate, double loss) {
  Trial t{rate, {}, {}, {}, 0};
  t.row.loss_last = loss;
  return t;
}

TEST(L06_Race, TheBestIsTheLowestThatIsANumber) {
  const Result r{"x", {trial(1, 3), trial(2, NAN), trial(3, 2), trial(4, INFINITY)}};
  EXPECT_EQ(r.best().rate, 3);
  EXPECT_TRUE(r.best_is_inside());
  EXPECT_FALSE((Result{"x", {trial(1, 1), trial(2, 2), trial(3, NAN)}}.best_is_inside()));
  const Result first_is_nan{"x", {trial(1, NAN), trial(2, 2), trial(3, 1)}};
  EXPECT_EQ(first_is_nan.best().rate, 3);
  EXPECT_FALSE(first_is_nan.best_is_inside());
}

TEST(L06_Race, TheSpreadIsOfTheBestRateOverAllSeeds) {
  Result r{"x", {trial(1, 3), trial(2, 2), trial(3, 4)}};
  r.repeats = {trial(2, 2.5), trial(2, 1.5)};
  const Spread s = r.last_losses();
  EXPECT_DOUBLE_EQ(s.mean, 2);
  EXPECT_EQ(s.least, 1.5);
  EXPECT_EQ(s.most, 2.5);
  EXPECT_EQ(r.best().rate, 2) << "the other seeds do not choose the rate";
  r.repeats.push_back(trial(2, NAN));
  EXPECT_TRUE(std::isnan(r.last_losses().mean) && std::isnan(r.last_losses().most)) << "one seed diverged";
}

TEST(L06_Race, TheTimeIsThatOfTheFastestRun) {
  Result r{"x", {trial(1, 3), trial(2, 2)}};
  r.repeats = {trial(2, 2.5)};
  EXPECT_FALSE(r.table_row().ms_per_step) << "on meta no run has a time";
  r.trials[0].row.ms_per_step = 7, r.trials[1].row.ms_per_step = 9, r.repeats[0].row.ms_per_step = 5;
  r.repeats[0].row.tokens_per_s = 200;
  EXPECT_EQ(r.table_row().ms_per_step, 5);
  EXPECT_EQ(r.table_row().tokens_per_s, 200);
  EXPECT_EQ(r.table_row().loss_last, 2) << "the loss is that of the best run";
  EXPECT_EQ(r.table_row().name, "x");
}

TEST(L06_Checks, OfTimeDifferWhereAnUpdateIsTooSlow) {
  const auto update = [](double seconds) {
    return failed_checks([&](Report& r) { check_bandwidth("AdamW", 7, seconds, r); });
  };
  const auto muon = [](double rate) { return failed_checks([&](Report& r) { check_muon(rate, 10, r); }); };
  EXPECT_EQ(update(9.9), Names{});
  EXPECT_EQ(update(10.1), Names{"AdamW: bandwidth of the update / of y += x"});
  EXPECT_EQ(muon(6), Names{});
  EXPECT_EQ(muon(5.9), Names{"Muon: FLOP/s, products in bf16 / measured fp32 GEMM peak"});
}

TEST(L06_Checks, EachFailsOnAWrongValue) {
  const char* const kMuon = "Muon: largest last loss of the seeds; bound: AdamW's smallest";
  using Plant = std::function<void(std::vector<Result>&)>;
  const auto failed = [](const Plant& plant, int64_t steps = 200, const std::string& not_swept = "") {
    std::vector<Result> all{{"AdamW", {trial(1, 3), trial(2, 2), trial(3, 3)}},
                            {"Muon", {trial(1, 3), trial(2, 2), trial(3, 3)}}};
    for (Result& r : all)
      for (Trial& t : r.trials) {
        t.state_bytes = 8, t.row.loss_first = 4;
        t.row.peak.emplace().by_kind[int(Kind::Optimizer)] = 8;
      }
    plant(all);
    return failed_checks([&](Report& r) { check_results(all, steps, not_swept, r); });
  };
  EXPECT_EQ(failed([](auto&) {}), Names{});
  for (const int64_t off : {-4, 4})
    EXPECT_EQ(failed([=](auto& all) { all[1].trials[1].row.peak->by_kind[int(Kind::Optimizer)] += off; }),
              Names{"Muon: state bytes"});
  const Plant rose = [](auto&all) { all[0].trials[1].row.loss_first = 1.9; },
              worse = [](auto&all) { all[1].trials[1].row.loss_last = 2.1; },
              one_seed_worse =
                  [](auto&all) {
                    all[1].repeats = {trial(2, 1), trial(2, 2.1)};
                  },
              diverged =
                  [](auto&all) {
                    all[1].repeats = {trial(2, 1), trial(2, NAN)};
                  },
              outside = [](auto&all) { all[1].trials[2].row.loss_last = 1; };
  EXPECT_EQ(failed(rose), Names{"AdamW: last loss; bound: first loss"});
  EXPECT_EQ(failed(rose, 19), Names{}) << "20 steps are too few to judge";
  EXPECT_EQ(failed(outside), Names{"Muon: best rate between worse rates (1: yes)"});
  EXPECT_EQ(failed(worse), Names{kMuon});
  EXPECT_EQ(failed(one_seed_worse), Names{kMuon});
  EXPECT_EQ(failed(diverged), Names{kMuon});
  for (const Plant& plant : {outside, worse, one_seed_worse})
    EXPECT_EQ(failed(plant, 200, "no sweep"), Names{});
}

TEST(L06_Race, SmoothedOverTwenty) {
  std::vector<double> losses(30, 1.0);
  losses[0] = 21;
  const std::vector<double> s = smooth(losses);
  EXPECT_EQ(s[0], 21);
  EXPECT_EQ(s[1], 11);
  EXPECT_EQ(s[19], 2);
  EXPECT_EQ(s[20], 1) << "the first loss is not in this mean any more";
}

// The published figures, in MiB. AdamW's states are 2,557 MiB of the difference.
TEST(L06_PublishedRuns, BertLargeWithAdafactor) {
  const PublishedRuns runs = published_adafactor();
  expect_figures(runs, {14'949, 12'295});
  expect_taken_apart(runs.gap, runs.figures[1]);
  expect_explained(runs.gap);
  EXPECT_LT(runs.figures[1].ours, runs.figures[0].ours - 2'500);
}

// Each array that is read or written moves 4 bytes per parameter. Adafactor reads five and writes one; its
// row and column means add 0.02 bytes.
TEST(L06_UpdateTime, TheTableShowsTheBytesThatAnUpdateMoves) {
  Context context("meta");
  Report report("06_optimizers", context.device);
  testing::internal::CaptureStdout();
  update_time_table(report);
  const std::string text = testing::internal::GetCapturedStdout();
  for (const char* row :
       {"SGD +g w > w +12\\b", "momentum +g m w > m w +20\\b", "AdamW +g m v w > m v w +28\\b",
        "Adafactor +w, g, g, g w > w +24\\.02\\b", "Muon, update of one matrix .*: 25600 FLOPs"})
    EXPECT_TRUE(std::regex_search(text, std::regex(row))) << row << " in\n" << text;
}

}  // namespace
}  // namespace gradus
