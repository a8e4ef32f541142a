// Each check of lesson 16 passes with right values and fails with a planted wrong value.
#include <cmath>

#include "lessons/16_fusion_and_graphs/elements.h"
#include "lessons/16_fusion_and_graphs/head.h"
#include "lessons/16_fusion_and_graphs/pairs.h"
#include "lessons/16_fusion_and_graphs/ways.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TEST(L16_Checks, Pairs) {
  const std::vector<ComparedPair> right(2, {{"two", {}, {}, {}, 10}, {100, 1, {1}, {2}}, {60, 1, {1}, {2}}});
  const Checked failed(right, [](const auto& all, Report& r) { report_pairs(all, {8, 4}, r); });
  for (const int64_t more : {-1, 1})
    EXPECT_EQ(failed([=](auto& all) { all[1].fused.moved += more; }),
              Names{"(a) two: bytes moved, separate - fused"});
  for (const double wrong : {1.0002, double(NAN)})
    EXPECT_EQ(failed([=](auto& all) { all[0].fused.y[0] = wrong; }),
              Names{"(a) two: largest difference of results and gradients"});
  EXPECT_EQ(failed([](auto& all) { all[1].fused.gradients[0] = 1.9998; }),
            Names{"(a) two: largest difference of results and gradients"});
}

TEST(L16_Checks, Heads) {
  const std::vector<HeadRun> right{
      {0, 900, 1, {2}, {3, 4}}, {4, 300, 1, {2}, {3, 4}}, {8, 500, 1, {2}, {3, 4}}};
  const Checked failed(right, [](const auto& runs, Report& r) { report_heads(runs, {16, 2, 10}, r); });
  for (const double wrong : {2 + 3e-6, 2 - 3e-6, double(NAN)})
    EXPECT_EQ(failed([=](auto& runs) { runs[1].loss[0] = wrong; }),
              Names{"(b) chunks of 4 rows: |loss - loss with all rows|"});
  for (const double wrong : {4 + 6e-6, double(NAN)})
    EXPECT_EQ(failed([=](auto& runs) { runs[2].gradients[1] = wrong; }),
              Names{"(b) chunks of 8 rows: norm of the gradient difference / norm of the gradient"});
  EXPECT_EQ(failed([](auto& runs) { runs[2].seconds = 1.2; }),
            Names{"(b) time, all rows / chunks of 8 rows"});
  EXPECT_EQ(failed([](auto& runs) { runs[1].seconds = 9; }), Names{}) << "small chunks are slower";
}

TEST(L16_Checks, PeaksOfTheModel) {
  // 12 rows less of 10 logits in fp32; log-sum-exps and losses of 4 rows, and two scalars, more.
  const auto failed = [](int64_t all) {
    return failed_checks([&](Report& r) { check_peaks(all, 1000, {16, 2, 10}, 4, r); });
  };
  EXPECT_EQ(failed(1000 + 480 - 40), Names{});
  for (const int64_t off : {-4, 4, 40})
    EXPECT_EQ(failed(1000 + 480 - 40 + off), Names{"(c) GPT-2 124M: bytes at the peak, all logits - chunks"});
}

TEST(L16_Checks, Elements) {
  const std::vector<ElementRun> right{{"2 multiplications", 2, 1600, 800, 2, 1, 1},
                                      {"10 multiplications", 10, 8000, 800, 9, 1, 1},
                                      {"with a gelu", 10, 8000, 800, 9, 2, 2}};
  const Checked failed(right, [](const auto& runs, Report& r) { report_elements(runs, 100, 10, "", r); });
  for (const int64_t more : {-4, 4})
    EXPECT_EQ(failed([=](auto& runs) { runs[1].moved_chain += more; }),
              Names{"(d) 10 multiplications: bytes moved, separate - fused"});
  for (const size_t i : {0u, 1u, 2u})
    EXPECT_EQ(failed([=](auto& runs) { runs[i].equal = false; }),
              Names{"(d) fused results that differ bitwise"});
  EXPECT_EQ(failed([](auto& runs) { runs[1].separate = 7.9; }),
            Names{"(d) 10 multiplications: time, separate / fused"});
  EXPECT_EQ(failed([](auto& runs) { runs[2].in_cache = 1.5; }),
            Names{"(d) with a gelu: max(time of one pass over memory, time in the cache) / time"});
  EXPECT_EQ(failed([](auto& runs) { runs[2].in_cache = 1, runs[0].chain = 1.7; }), Names{})
      << "one pass over memory takes as long";
}

TEST(L16_Checks, Ways) {
  const ComparedWays right{3, {{3, 2}, {3, 2.00009}, {3, 2}, {3, 2}}, 3, 1};
  const Checked failed(right, [](const auto& ways, Report& r) { check_ways(ways, 3, "", "", r); });
  EXPECT_EQ(failed([](auto& w) { w.chains = 2; }), Names{"(e) different chains in a step"});
  EXPECT_EQ(failed([](auto& w) { w.losses[1][1] = 2.0002; }),
            Names{"fused by hand: largest difference of losses from op by op"});
  EXPECT_EQ(failed([](auto& w) { w.losses[2][1] = std::nextafter(2.0, 3.0); }),
            Names{"captured: largest difference of losses from op by op"});
  EXPECT_EQ(failed([](auto& w) { w.losses[3][0] = NAN; }),
            Names{"captured, compiled: largest difference of losses from op by op"});
  EXPECT_EQ(failed([](auto& w) { w.op_by_op = 2.9; }), Names{"(f) host time per step, op by op / replay"});
  const ComparedWays few{0, {{3}, {3}, {3}, {3}}, 0, 0};
  EXPECT_EQ(failed_checks([&](Report& r) { check_ways(few, 3, "no replay", "", r); }), Names{});
  EXPECT_EQ(failed_checks([&](Report& r) {
              check_ways({0, right.losses, 3, 1}, 3, "", "no compiler", r);
            }),
            Names{});
}

}  // namespace
}  // namespace gradus
