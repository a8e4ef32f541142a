// Each check of lesson 15 passes with right values and fails with a planted wrong value.
#include <cmath>

#include "lessons/15_flash_attention/compare.h"
#include "lessons/15_flash_attention/one_head.h"
#include "lessons/15_flash_attention/traffic.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TEST(L15_Checks, OfPrograms) {
  const Checked failed(run_programs(1), [](const auto& runs, Report& r) { report_programs(runs, r); });
  for (const size_t i : {0u, 4u})
    for (const int64_t more : {-1, 1}) {
      EXPECT_EQ(failed([&](auto& r) { r[i].memory.loads += more; }),
                Names{"(a) counts of loads and stores that differ from the formulas"});
      EXPECT_EQ(failed([&](auto& r) { r[i].memory.stores += more; }),
                Names{"(a) counts of loads and stores that differ from the formulas"});
    }
  for (const double bad : {2e-5, double(NAN)})
    EXPECT_EQ(failed([&](auto& r) { r[2].difference = bad; }),
              Names{"(a) largest difference of y from softmax in two passes"});
}

TEST(L15_Checks, OfMoves) {
  const AttentionSize size{.B = 1, .T = 8, .heads = 1, .D = 4};
  const Moved forward{1000, 100}, backward{3000, 200};
  const std::vector<CountedMoves> right(
      2, {size, {forward, backward}, {forward, backward}, {forward, backward}});
  const Checked failed(right, [](const auto& all, Report& r) { report_moves(all, r); });
  for (const size_t row : {0u, 1u})
    for (const int pass : {0, 1})
      for (const int64_t more : {-1, 1}) {
        const Names name{"(b) flash: counted bytes, sum of differences from the formula of its tiles"};
        EXPECT_EQ(failed([&](auto& all) { all[row].flash[pass].loaded += more; }), name);
        EXPECT_EQ(failed([&](auto& all) { all[row].flash[pass].stored += more; }), name);
      }
}

TEST(L15_Checks, OfSavedBytes) {
  std::vector<Compared> right;
  for (const auto& [T, kv] : {std::pair(64, 4), {128, 4}, {64, 1}}) {
    const AttentionSize size{.B = 1, .T = T, .heads = {4, kv}, .D = 8};
    Compared each{size, {}, {}};
    each.plain.saved = saved_by_plain(size), each.flash.saved = saved_by_flash(size);
    each.plain.seconds = 2, each.flash.seconds = 1;
    right.push_back(each);
  }
  const Checked failed(right, [](const auto& all, Report& r) { report_compared(all, "", r); });
  const std::string formula = "(c) saved bytes: sum of differences from the formulas",
                    linear = "(c) flash: sum over T of |T0 saved(T) - T saved(T0)|, T0 = first row";
  EXPECT_EQ(failed([](auto& all) { all[0].plain.saved += 1; }), Names{formula});
  EXPECT_EQ(failed([](auto& all) { all[1].flash.saved += 1; }), (Names{formula, linear}));
  EXPECT_EQ(failed([](auto& all) { all[2].flash.saved -= 1; }), Names{formula}) << "it has fewer KV heads";
  EXPECT_EQ(failed([](auto& all) {
              all[1].size.B = 2;
              all[1].plain.saved = saved_by_plain(all[1].size),
              all[1].flash.saved = saved_by_flash(all[1].size);
            }),
            Names{linear})
      << "as the formula, but of two sequences";
  EXPECT_EQ(failed([](auto& all) { all[1].plain.seconds = 0.1, all[1].flash.seconds = 0.2; }),
            Names{"(c) time, plain / flash, T = 128"});
}

TEST(L15_Checks, OfErrors) {
  const AttentionSize size{.B = 1, .T = 8, .heads = 1, .D = 4};
  const std::vector<AttentionErrors> right{{DType::F32, {1e-6, 2e-6}, {1e-6, 2e-6}, {1, 1}},
                                           {DType::BF16, {1e-2, 2e-2}, {1e-2, 2e-2}, {1, 1}}};
  const Checked failed(right, [&](const auto& errors, Report& r) { report_errors(size, errors, r); });
  EXPECT_EQ(failed([](auto& e) { e[0].flash[0] = 2.4e-6; }), Names{}) << "allowed are 2e-6 + 8 / 2^24";
  EXPECT_EQ(failed([](auto& e) { e[0].flash[0] = 2.5e-6; }), Names{"(d) y in fp32: error of flash"});
  EXPECT_EQ(failed([](auto& e) { e[0].flash[1] = 4.5e-6; }), Names{"(d) gradients in fp32: error of flash"});
  EXPECT_EQ(failed([](auto& e) { e[1].flash[1] = 0.041; }), Names{"(d) gradients in bf16: error of flash"});
  EXPECT_EQ(failed([](auto& e) { e[1].flash[0] = NAN; }), Names{"(d) y in bf16: error of flash"});
}

TEST(L15_Checks, OfTraining) {
  const TransformerConfig model{.context = 16, .layers = 3, .heads = 2, .channels = 8};
  struct Both {
    Trained plain{{3, 2}, 100'000}, flash{{3, 2}, 100'000 - 3 * 5 * 2 * 16 * 15 * 4};
  };
  const Checked failed(Both{},
                       [&](const Both& b, Report& r) { check_training(model, 5, b.plain, b.flash, r); });
  EXPECT_EQ(failed([](Both& b) { b.flash.losses[1] = 2.0002; }),
            Names{"GPT: largest difference of losses, plain - flash"});
  EXPECT_EQ(failed([](Both& b) { b.flash.losses[0] = NAN; }),
            Names{"GPT: largest difference of losses, plain - flash"});
  for (const int64_t more : {-1, 1})
    EXPECT_EQ(failed([&](Both& b) { b.flash.activations += more; }),
              Names{"GPT: activation bytes at the peak, plain - flash"});
}

TEST(L15_Checks, TheLargestDifferenceKeepsNan) {
  EXPECT_EQ(largest_difference({1, 2, 3}, {1, 5, 1}), 3);
  EXPECT_TRUE(std::isnan(largest_difference({1, NAN, 3}, {1, 2, 9})));
  EXPECT_ANY_THROW(largest_difference({1}, {1, 2}));
  EXPECT_EQ(largest_difference({}, {}), 0);
}

}  // namespace
}  // namespace gradus
