// Each check of lesson 21 passes with correct values, and fails with a planted wrong one.
#include "lessons/21_mixture_of_experts/published.h"
#include "lessons/21_mixture_of_experts/ranks.h"
#include "lessons/21_mixture_of_experts/routing.h"
#include "lessons/21_mixture_of_experts/runs.h"
#include "tests/folder_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

using L21_Checks = FolderTest;

Names failed_runs(const std::string& plot, const std::function<void(std::vector<MixtureRun>&)>& plant) {
  Context context;
  const MixtureSizes sizes = mixture_sizes(true);
  std::vector<MixtureRun> runs;
  for (const TransformerConfig& c : {sizes.dense_active, sizes.mixture}) {
    MixtureRun run{c.experts > 0 ? "mixture" : "dense", c};
    run.losses.assign(3000, 1), run.seconds.assign(3000, 0.1);
    run.held_out = {0.5, 0.4}, run.held_out_at = {1500, 3000};
    run.flops = mixture_flops(c, 4, c.context);
    runs.push_back(run);
  }
  plant(runs);
  return failed_checks([&](Report& report) { compare_runs(runs, 4, plot, report); });
}

TEST_F(L21_Checks, Runs) {
  const std::string plot = path("losses.svg");
  EXPECT_EQ(failed_runs(plot, [](auto&) {}), Names{});
  EXPECT_EQ(failed_runs(plot, [](auto& runs) { ++runs[1].flops; }),
            Names{"(a) mixture: FLOPs of matrix products per step, counted = formula"});
  const Names loss{"(a) held-out loss of the mixture / of the dense model of its active size"};
  EXPECT_EQ(failed_runs(plot, [](auto& runs) { runs[1].held_out.back() = 0.4001; }), loss);
  EXPECT_EQ(failed_runs(plot, [](auto& runs) { runs[1].held_out.back() = NAN; }), loss);
  EXPECT_EQ(
      failed_runs(plot, [](auto& runs) { runs[1].held_out.back() = 0.4001, runs[1].losses.resize(2999); }),
      Names{})
      << "a run of fewer steps than the default does not check the loss";
}

TEST_F(L21_Checks, Places) {
  Context context;
  const TransformerConfig c = mixture_sizes(true).mixture;
  const KindsText text{{}, {"one", "two"}, {}};
  RoutedText routed;
  routed.shares.assign(1, std::vector(2, std::vector(8, 0.125)));
  const auto failed = [&](int64_t taken) {
    routed.most_taken = taken;
    return failed_checks(
        [&](Report& report) { experts_table(routed, text, c, path("experts.svg"), report); });
  };
  EXPECT_EQ(failed(c.expert_capacity(c.context)), Names{});
  EXPECT_EQ(failed(c.expert_capacity(c.context) + 1),
            Names{"(c) largest number of places that one sequence takes in one expert"});
}

TEST_F(L21_Checks, BalanceLosses) {
  const std::vector<std::pair<double, double>> right{{0.01, 0.01}, {0.04, 0.04}};
  const Checked failed(right, check_balance);
  for (const double wrong : {0.04 + 5e-8, 0.04 - 5e-8, double(NAN)})
    EXPECT_EQ(failed([=](auto& losses) { losses[1].first = wrong; }),
              Names{"(b) largest relative difference of a balance loss from alpha or alpha E / k"});
}

TEST_F(L21_Checks, Ranks) {
  const Checked failed(RanksOff{0, 1e-7, 0}, check_runs_on_ranks);
  for (const double wrong : {1e-16, double(NAN)})
    EXPECT_EQ(failed([=](RanksOff& off) { off.losses = wrong; }),
              Names{"(d) largest difference of a loss from the single-device run"});
  for (const double wrong : {1.1e-6, double(NAN)})
    EXPECT_EQ(failed([=](RanksOff& off) { off.gradients = wrong; }),
              Names{"(d) largest difference of a gradient from the single-device run, relative to its norm"});
  EXPECT_EQ(failed([](RanksOff& off) { off.sent = 1; }),
            Names{"(d) elements sent per rank that differ from the prediction"});
}

TEST_F(L21_Checks, BytesOfPublishedModels) {
  const Checked failed(std::vector<ModelBytes>(2, {16, 16, 16}), check_model_bytes);
  const Names name{
      "(e) bytes that differ from the files, rotary frequencies left out, or from 2 per parameter"};
  for (const int64_t off : {-2, 2}) {
    EXPECT_EQ(failed([=](auto& models) { models[0].of_file += off; }), name);
    EXPECT_EQ(failed([=](auto& models) { models[1].of_parameters += off; }), name);
  }
  EXPECT_EQ(failed([](auto& models) { models[0].measured -= 2, models[1].measured += 2; }), name)
      << "the differences of two models do not cancel";
}

}  // namespace
}  // namespace gradus
