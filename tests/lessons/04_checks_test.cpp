// The checks of lesson 04: right values pass, and every check fails on a wrong value.
#include <gtest/gtest.h>

#include <cmath>

#include "lessons/04_memory_anatomy/anatomy.h"
#include "lessons/04_memory_anatomy/batch_size.h"
#include "lessons/04_memory_anatomy/calculator.h"
#include "lessons/04_memory_anatomy/generation.h"
#include "lessons/published/runs.h"
#include "src/train/formulas.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

const TransformerConfig kModel{.vocab = 16, .context = 4, .layers = 1, .heads = 2, .channels = 8};

TEST(L04_Checks, Passes) {
  const auto failed = [](int64_t forward, int64_t backward, double share = 0.5) {
    return failed_checks([&](Report& r) { check_passes(forward, backward, share, r); });
  };
  EXPECT_EQ(failed(100, 200), Names{});
  EXPECT_EQ(failed(100, 200, 0.49), Names{"share of contractions in the time of the step"});
  for (const int64_t wrong : {199, 201})
    EXPECT_EQ(failed(100, wrong), Names{"FLOPs of contractions: backward = 2 x forward"});
}

TEST(L04_Checks, BytesPerParameter) {
  const auto failed = [](std::vector<MeasuredAndFormula> rows) {
    return failed_checks([&](Report& r) { check_parameters(rows, r); });
  };
  const Names name{"bytes per parameter: rows that differ from the formula"};
  EXPECT_EQ(failed({{16, 16}, {8, 8}, {4, 4}}), Names{});
  EXPECT_EQ(failed({{17, 16}, {8, 8}, {4, 4}}), name);
  EXPECT_EQ(failed({{16, 16}, {8, 8}, {3, 4}}), name);
  EXPECT_EQ(failed({{17, 16}, {7, 8}, {4, 4}}), name) << "differences of two rows do not cancel";
  EXPECT_EQ(failed({}), name);
}

// s = 4, b = 3, h = 8, a = 2: Megatron-LM's bytes, and those of the formula of exercise 04.3, in 16 bits.
TEST(L04_Checks, SavedByALayer) {
  TransformerConfig c = kModel;
  c.precision = precision_recipe("mixed");
  const int64_t published = 34 * 96 + 5 * 96, ours = 32 * 96 + 2 * 96 + 16 * 12;
  const auto failed = [&](int64_t published_bytes, int64_t our_bytes, const TransformerConfig& config) {
    return failed_checks([&](Report& r) { check_saved(published_bytes, our_bytes, config, 3, r); });
  };
  const std::string megatron = "saved bytes per block, Megatron-LM = sbh (34 + 5as/h)",
                    less = "saved bytes per block, gradus = Megatron-LM - 2sbh - 3as²b + 16sb",
                    formula = "saved bytes per block, gradus = formula of exercise 04.3";
  EXPECT_EQ(failed(published, ours, c), Names{});
  for (const int64_t off : {-2, 2}) {
    EXPECT_EQ(failed(published + off, ours, c), Names{megatron});
    EXPECT_EQ(failed(published, ours + off, c), (Names{less, formula}));
  }
  EXPECT_EQ(failed(published, ours, kModel), Names{formula}) << "fp32 saves more";
  EXPECT_EQ(failed(published, saved_by_a_layer(kModel, 3, kModel.context), kModel), Names{less})
      << "the terms are those of 16 bits";
}

TEST(L04_Checks, BatchSizes) {
  const int64_t N = 100, held = 1600 + kWorkspaceBytes + int64_t(sizeof(StepScalars) + sizeof(UpdateScalars));
  const auto failed = [&](std::vector<BatchTrial> trials, int64_t held_bytes) {
    return failed_checks([&](Report& r) { check_trials(trials, 1000, held_bytes, N, r); });
  };
  const BatchTrial one{1, 1, 500, 600, ""}, two{2, 1, 900, 1000, ""}, failure{4, NAN, 0, 0, "out of memory"};
  EXPECT_EQ(failed({one, two, failure, one}, held), Names{});
  EXPECT_EQ(failed({one, {2, 1, 900, 1001, ""}, failure, one}, held),
            Names{"largest reserved memory in (e), bytes; bound: the budget"});
  for (const int64_t wrong : {499, 501})
    EXPECT_EQ(failed({one, two, failure, {1, 1, wrong, 600, ""}}, held),
              Names{"allocated bytes at the peak, batch 1: after the error = before it"});
  EXPECT_EQ(failed({failure, failure}, held),
            Names{"allocated bytes at the peak, batch 1: after the error = before it"});
  for (const int64_t off : {-1, 1})
    EXPECT_EQ(failed({one, two, failure, one}, held + off),
              Names{"bytes after the error, without rounding = 16 N + workspace + scalars"});
}

TEST(L04_Checks, Caches) {
  const auto failed = [](std::vector<Generation> all) {
    return failed_checks([&](Report& r) { check_caches(all, 10, r); });
  };
  const Names name{"rows of (f) whose number of caches is not 1 (sampling), 2 (beams)"};
  EXPECT_EQ(failed({{0, 10, 99, 1}, {1, 20, 99, 1}, {8, 160, 99, 1}}), Names{});
  EXPECT_EQ(failed({{0, 20, 99, 1}, {1, 20, 99, 1}}), name);
  EXPECT_EQ(failed({{0, 10, 99, 1}, {1, 10, 99, 1}}), name);
  EXPECT_EQ(failed({{0, 10, 99, 1}, {8, 80, 99, 1}}), name);
  EXPECT_EQ(failed({}), name);
}

// The calculator's prediction for a run, compared with measured values.
struct L04_Prediction : testing::Test {
  TrainingRun run{kModel, 2, 4};
  ReportRow row;
  Usage& peak = row.peak.emplace(memory_need(run).peak.usage);
  L04_Prediction() { row.reserved_bytes = memory_need(run).reserved; }
  Names failed(const std::string& skip = "") {
    return failed_checks([&](Report& r) { compare_with_prediction(run, row, skip, r); });
  }
  int64_t& of(Kind kind) { return peak.by_kind[int(kind)]; }
};

TEST_F(L04_Prediction, EachCheckFailsOnAWrongValue) {
  const std::string states = "bytes of weights, gradients, AdamW's states = (4 + 4 + 8) N",
                    kinds = "kinds of memory that differ from the prediction",
                    allocated = "allocated bytes at the peak = predicted",
                    reserved = "reserved bytes at the peak = predicted",
                    other = "bytes of kind 'other' = scalars of the step and of the optimizer";
  EXPECT_EQ(failed(), Names{});
  of(Kind::Weight) += 4;
  EXPECT_EQ(failed(), (Names{states, kinds, allocated}));
  of(Kind::Gradient) -= 4;
  EXPECT_EQ(failed(), Names{kinds}) << "a gradient that counts as a weight";
  of(Kind::Gradient) += 4, of(Kind::Weight) -= 4, of(Kind::Activation) -= 4;
  EXPECT_EQ(failed(), (Names{kinds, allocated}));
  of(Kind::Activation) += 4, of(Kind::Other) += 8, of(Kind::Data) -= 8;
  EXPECT_EQ(failed(), (Names{kinds, other}));
  EXPECT_EQ(failed("too early"), Names{other}) << "kind 'other' does not depend on the number of steps";
  of(Kind::Other) -= 8, of(Kind::Data) += 8, peak.rounding += 512;
  EXPECT_EQ(failed(), Names{allocated});
  peak.rounding -= 512, *row.reserved_bytes += 512;
  EXPECT_EQ(failed(), Names{reserved});
  run.model.precision = precision_recipe("half");
  peak = memory_need(run).peak.usage, row.reserved_bytes = memory_need(run).reserved;
  EXPECT_EQ(failed(), Names{states}) << "as predicted, but a recipe with fewer bytes per parameter";
}

TEST(L04_Checks, StatesOfTheCalculator) {
  const auto failed = [](Kind kind, int64_t bytes) {
    Usage peak;
    for (const Kind k : {Kind::Weight, Kind::Master, Kind::Gradient, Kind::Optimizer})
      peak.by_kind[int(k)] = 10;
    peak.by_kind[int(kind)] += bytes;
    return failed_checks([&](Report& r) { check_states(peak, 40, r); });
  };
  const Names name{"bytes of weights, master copies, gradients, states = formula"};
  EXPECT_EQ(failed(Kind::Activation, 99), Names{});
  for (const Kind kind : {Kind::Weight, Kind::Master, Kind::Gradient, Kind::Optimizer})
    for (const int64_t off : {-1, 1}) EXPECT_EQ(failed(kind, off), name) << name_of(kind);
}

TEST(L04_Checks, VerdictsAndTheGap) {
  const auto failed = [](std::vector<Verdict> verdicts, int64_t unexplained) {
    PublishedRuns runs;
    runs.verdicts = std::move(verdicts);
    runs.gap.whole = 1000, runs.gap.unexplained = unexplained;
    return failed_checks([&](Report& r) { check_verdicts(runs, r); });
  };
  const Names verdicts{"published verdicts that the reproduced run or gradus contradicts"},
      gap{"BERT-large: unexplained share of the gap"};
  EXPECT_EQ(failed({{"a", true, true, true}, {"b", false, false, false}}, 30), Names{});
  EXPECT_EQ(failed({{"a", true, false, true}}, 0), verdicts);
  EXPECT_EQ(failed({{"a", true, true, false}}, 0), verdicts);
  EXPECT_EQ(failed({{"a", false, true, false}}, 0), verdicts);
  for (const size_t at : {0, 1, 2}) {
    std::vector<Verdict> of_three(3, {"a", true, true, true});
    of_three[at].reproduced = false;
    EXPECT_EQ(failed(of_three, 0), verdicts) << at;
  }
  for (const int64_t wrong : {-31, 31}) EXPECT_EQ(failed({{"a", true, true, true}}, wrong), gap);
}

}  // namespace
}  // namespace gradus
