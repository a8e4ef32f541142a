// Lesson 09's own checks pass with correct values and fail with planted wrong values; and the published runs.
#include <cmath>

#include "lessons/09_mixed_precision/batches.h"
#include "lessons/09_mixed_precision/recipes.h"
#include "lessons/09_mixed_precision/underflow.h"
#include "tests/lessons/published_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

// Bytes per parameter of weight, master copy, gradient and AdamW's two states. Sources: Hugging Face, "Model
// training anatomy" (mixed); ZeRO, section 3.1 (zero).
TEST(L09_Checks, BytesOfStates) {
  const struct {
    const char* name;
    int64_t weight, master, gradient, states, sum;
  } recipes[] = {{"fp32", 4, 0, 4, 8, 16},         {"mixed", 2, 4, 4, 8, 18},
                 {"mixed-fp16", 2, 4, 4, 8, 18},   {"mixed-fp16, scaled", 2, 4, 4, 8, 18},
                 {"zero, scaled", 2, 4, 2, 8, 16}, {"half, scaled", 2, 0, 2, 4, 8}};
  ASSERT_EQ(scaled_recipes().size(), std::size(recipes));
  for (size_t i = 0; i < std::size(recipes); ++i) {
    const auto& r = recipes[i];
    const auto failed = [&](Kind planted, int64_t more) {
      Usage peak;
      for (const auto& [kind, bytes] : {std::pair(Kind::Weight, r.weight),
                                        {Kind::Master, r.master},
                                        {Kind::Gradient, r.gradient},
                                        {Kind::Optimizer, r.states}})
        peak.by_kind[int(kind)] = 1000 * bytes;
      peak.by_kind[int(planted)] += more;
      return failed_checks([&](Report& out) { check_states(scaled_recipes()[i], peak, 1000, out); });
    };
    const Names name{
        r.name + (": bytes of weights, gradients and states, " + std::to_string(r.sum) + " per parameter")};
    EXPECT_EQ(failed(Kind::Activation, 77), Names{}) << r.name;
    for (const Kind kind : {Kind::Weight, Kind::Master, Kind::Gradient, Kind::Optimizer})
      for (const int64_t more : {-1, 1}) EXPECT_EQ(failed(kind, more), name) << name_of(kind);
  }
}

TEST(L09_Checks, HeldOutLosses) {
  const std::vector<double> right{2, 2.019, 2.031, 1.9, 2.019, NAN};
  const auto failed = [&](size_t i, double loss, int64_t steps = 40, int64_t tokens = 32768) {
    std::vector<double> losses = right;
    losses[i] = loss;
    return failed_checks([&](Report& r) { check_losses(steps, tokens, losses, r); });
  };
  const auto name = [](const char* of) {
    return Names{std::string(of) + ": held-out loss, relative increase over fp32"};
  };
  EXPECT_EQ(failed(0, 2), Names{});
  EXPECT_EQ(failed(1, 2.021), name("mixed"));
  EXPECT_EQ(failed(2, 2.001),
            Names{"mixed-fp16: held-out loss, relative increase over fp32, because gradients underflow"})
      << "without a loss scale, fp16 must be worse";
  EXPECT_EQ(failed(3, NAN), name("mixed-fp16, scaled"));
  EXPECT_EQ(failed(4, 2.021, 40, 40000), name("zero, scaled"));
  EXPECT_EQ(failed(4, 9, 39), Names{}) << "the bounds are for 40 steps";
  EXPECT_EQ(failed(4, 9, 40, 32767), Names{});
}

TEST(L09_Checks, Underflow) {
  const auto failed = [](size_t i, Underflow planted, int64_t targets = 32768, int64_t steps = 20) {
    std::vector<Underflow> scales{{1, 0.1, 0.5, 0.1, 0.3},
                                  {0x1p8, 0.05, 0.05, 0.05, 0.02},
                                  {0x1p16, 0.01, 0.01, 0.01, 0.02},
                                  {0x1p24, 0, 0, 0, INFINITY}};
    scales[i] = planted;
    return failed_checks([&](Report& r) { check_underflow(targets, steps, scales, r); });
  };
  const std::string zero = ": gradients that become 0, ", occur = "logits of bytes in the text",
                    absent = "logits of bytes not in the text", queries = "queries";
  EXPECT_EQ(failed(1, {0x1p8, 0.9, 0.9, 0.9, 0.9}), Names{}) << "the second scale is shown, but not checked";
  EXPECT_EQ(failed(0, {1, 0, 0.49, 0.1, 0.3}), Names{"(b) loss scale 1" + zero + absent});
  EXPECT_EQ(failed(0, {1, 0, 0.5, 0.09, 0.3}), Names{"(b) loss scale 1" + zero + queries});
  EXPECT_EQ(failed(2, {0x1p16, 0.011, 0, 0, 0}), Names{"(b) loss scale 65536" + zero + occur});
  EXPECT_EQ(failed(2, {0x1p16, 0, 0.011, 0, 0}), Names{"(b) loss scale 65536" + zero + absent});
  EXPECT_EQ(failed(2, {0x1p16, 0, 0, 0.011, 0}), Names{"(b) loss scale 65536" + zero + queries});
  const Names weights{"(b) loss scale 65536: gradient of the weights, relative difference from fp32"};
  EXPECT_EQ(failed(2, {0x1p16, 0, 0, 0, 0.021}), weights);
  EXPECT_EQ(failed(2, {0x1p16, 0, 0, 0, NAN}), weights);
  EXPECT_EQ(failed(0, {1, 0, 0, 0, 0}, 32767), Names{}) << "the gradients of a smaller batch are larger";
  EXPECT_EQ(failed(0, {1, 0, 0, 0, 0}, 32768, 19), Names{})
      << "gradients are larger after few training steps";
}

TEST(L09_Checks, SkippedUpdates) {
  const auto failed = [](std::vector<ScaledUpdate> updates, int64_t steps = 20) {
    return failed_checks([&](Report& r) { scale_table(updates, steps, r); });
  };
  const Names changed{"(c) weights changed by skipped updates"};
  EXPECT_EQ(failed({{4, 0, 9, true}, {2, 9, 9, false}}), Names{});
  EXPECT_EQ(failed({{4, 1, 9, true}, {2, 9, 9, false}}), changed);
  EXPECT_EQ(failed({{4, 0, 9, true}, {2, 9, 9, false}, {1, 9, 9, true}}), changed);
  EXPECT_EQ(failed({{4, 9, 9, false}, {2, 9, 9, false}}), Names{"(c) skipped updates"});
  EXPECT_EQ(failed({{4, 9, 9, false}, {2, 9, 9, false}}, 19), Names{})
      << "after few training steps no gradient overflows";
  const Names none{"(c) updates that changed weights"};
  EXPECT_EQ(failed({{4, 0, 9, true}, {2, 0, 9, true}}), none) << "all updates are skipped";
  EXPECT_EQ(failed({{4, 0, 9, true}, {2, 0, 9, false}}), none);
}

TEST(L09_Checks, UpdatesThatRoundAway) {
  const auto failed = [](double fp32, double bf16) {
    return failed_checks([&](Report& r) {
      updates_table({{1e-3, 0.5, 0, 0}, {1e-4, 0.5, 0, 0}, {1e-5, fp32, 0.7, bf16}}, r);
    });
  };
  EXPECT_EQ(failed(0.1, 0.5), Names{});
  EXPECT_EQ(failed(0.11, 0.5), Names{"(d) learning rate 1e-05: share of unchanged fp32 weights"});
  EXPECT_EQ(failed(0.1, 0.49), Names{"(d) learning rate 1e-05: share of unchanged bf16 weights"});
}

TEST(L09_Checks, Batches) {
  const Context context;
  const BatchCosts right{100, 6, 7, {{1, {50, 2}, {50, 1}}, {3, {60, 2}, {90, 1}}, {24, {90, 2}, {90, 1}}}};
  const Checked failed(right, batches_table);
  for (const int64_t measured : {4, 8})
    EXPECT_EQ(
        failed([=](BatchCosts& c) { c.measured = measured; }),
        Names{"(e) smallest batch at which mixed needs no more memory than fp32: predicted - measured"});
  EXPECT_EQ(failed([](BatchCosts& c) { c.batches[0].mixed.bytes = 49; }),
            Names{"(e) smallest batch of the table: peak memory, mixed / fp32"});
  EXPECT_EQ(failed([](BatchCosts& c) { c.batches[2].mixed.bytes = 91; }),
            Names{"(e) largest batch of the table: peak memory, mixed / fp32"});
  EXPECT_EQ(failed([](BatchCosts& c) { c.batches[2].mixed.seconds = 9; }),
            Names{"(e) largest batch of the table: time, fp32 / mixed"});
}

// Reference numbers, 4.3, in MiB.
TEST(L09_PublishedRuns, BertLargeInFp16) {
  const PublishedRuns runs = published_mixed_precision();
  expect_figures(runs, {14'949, 13'939, 7'275});
  expect_taken_apart(runs.gap, runs.figures[1]);
  const PublishedFigure fp32 = published_checkpointing().figures[1];
  EXPECT_GT(runs.figures[2].reproduced, fp32.reproduced) << "with checkpointing, fp16 raises memory";
  EXPECT_GT(runs.figures[2].ours, fp32.ours) << "ours too";
}

}  // namespace
}  // namespace gradus
