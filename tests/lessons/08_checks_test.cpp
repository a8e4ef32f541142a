// Lesson 08's own checks: correct values pass, and each wrong value makes exactly one check fail.
#include <gtest/gtest.h>

#include "lessons/08_checkpointing/budget.h"
#include "lessons/08_checkpointing/chain.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TransformerConfig model(int64_t layers) {
  return {.vocab = 24, .context = 24, .layers = layers, .heads = 3, .channels = 12, .dropout = 0.1};
}

TEST(L08_Checks, TheTableFailsWhereACountIsWrong) {
  const auto failed = [](const ChainCounts& count) {
    return failed_checks([&](Report& r) { chain_table(r, count); });
  };
  EXPECT_EQ(failed({}), Names{});
  const auto one_more = [](const Chain& c) { return live_values(c) + (c.n == 5 && c.from_the_start); };
  EXPECT_EQ(failed({.values = one_more}), Names{"(a) 5 steps, x0 (from the start): values alive"});
  const auto one_less = [](const Chain& c) { return live_values(c) - (c.n == 400); };
  EXPECT_EQ(failed({.values = one_less}),
            Names{"(a) 400 steps, inputs of segments of sqrt(n): values alive"});
  const auto no_less = [](const Chain& c) { return c.n == 5 && c.segments.size() == 2 ? 6 : live_values(c); };
  EXPECT_EQ(failed({.values = no_less}), Names{"(a) 5 steps, inputs of segments of 2 and 3: values alive"});
  const auto more = [](const Chain& c, int64_t b) { return activation_bytes(c, b) + (c.n == 1600); };
  EXPECT_EQ(failed({.bytes = more}), Names{"(a) 1600 steps: bytes of activations (no gradient) at the peak"});
}

// A run with one segment per block, with wrong values planted.
TEST(L08_Checks, APolicyThatIsNotAsPredictedFails) {
  const TransformerConfig c = model(4);
  const Sizes sizes{c, 2, 24};
  const Policy each{"each", every(1, 4)}, all = policies(4).front();
  const Counted is = count_on_meta(c, 2, each);
  const int64_t recomputed = is.flops - count_on_meta(c, 2, all).flops;
  const PolicyRun right{is, {3, 2, 1}, std::vector<double>(size_t(c.parameter_count()), 0.5)};
  const auto failed = [&](const std::function<void(PolicyRun&, int64_t&)>& plant,
                          const std::string& skip = "") {
    PolicyRun run = right;
    int64_t flops = recomputed;
    plant(run, flops);
    return failed_checks([&](Report& r) { check_policy(each, run, flops, right, sizes, skip, r); });
  };
  const Names differ{"each: losses and gradients that differ bitwise from store-all"};
  EXPECT_EQ(failed([](PolicyRun&, int64_t&) {}), Names{});
  for (const int64_t off : {-4, 4}) {
    EXPECT_EQ(failed([=](PolicyRun& r, int64_t&) { r.counted.saved += off; }),
              Names{"each: bytes saved by the forward pass"});
    EXPECT_EQ(failed([=](PolicyRun& r, int64_t&) { r.counted.most += off; }),
              Names{"each: bytes of activations at the peak"});
    EXPECT_EQ(failed([=](PolicyRun&, int64_t& flops) { flops += off; }),
              Names{"each: recomputed FLOPs per step"});
  }
  for (const size_t at : {0, 1, 2})
    EXPECT_EQ(failed([=](PolicyRun& r, int64_t&) { r.losses[at] *= 1 + 0x1p-50; }), differ) << "loss " << at;
  for (const size_t at : {size_t(0), right.gradients.size() - 1}) {
    const auto last_bit = [=](PolicyRun& r, int64_t&) { r.gradients[at] *= 1 + 0x1p-50; };
    EXPECT_EQ(failed(last_bit), differ) << "gradient " << at;
    EXPECT_EQ(failed(last_bit, "no data"), Names{});
  }
  // If neither run has gradients, the check fails, because nothing was compared.
  const PolicyRun none{is, {3, 2, 1}, {}};
  EXPECT_EQ(failed_checks([&](Report& r) { check_policy(each, none, recomputed, none, sizes, "", r); }),
            differ);
}

// The checks of part (b).
TEST(L08_Checks, AChoiceAboveItsBudgetOrOfAWrongCostFails) {
  RecordProperty("exercise", "08.5");
  const std::vector<BudgetChoice> right = choose_for_budgets(model(4), 2);
  ASSERT_EQ(right.size(), 20u);
  int64_t with_brute = 0;
  for (const BudgetChoice& c : right) {
    EXPECT_EQ(c.measured, count_on_meta(model(4), 2, c.policy).most) << text_of(c.policy);
    with_brute += c.brute.has_value();
  }
  EXPECT_GT(with_brute, 10);
  const CountPolicy more = [](const TransformerConfig& c, int64_t batch, const Policy& p) {
    Counted counted = count_on_meta(c, batch, p);
    counted.most += 1 << 20;
    return counted;
  };
  EXPECT_EQ(failed_checks([&](Report& r) { budgets_table(choose_for_budgets(model(4), 2, more), r); }),
            Names{"(b) budgets exceeded, of 20"})
      << "the measured peak counts, not the predicted one";
  EXPECT_EQ(right.back().cost, 0) << "with the largest budget nothing is recomputed";
  const Checked failed(right, budgets_table);
  const Names wrong_cost{"(b) FLOPs: largest difference from exhaustive search"};
  const auto nothing = [](auto& choices) {
    for (BudgetChoice& c : choices) c.brute = std::nullopt;
  };
  EXPECT_EQ(failed(nothing), wrong_cost) << "nothing to compare with";
  for (const size_t i : {0u, 13u, 19u}) {
    EXPECT_EQ(failed([=](auto& all) { all[i].measured = all[i].budget; }), Names{}) << "the whole budget";
    EXPECT_EQ(failed([=](auto& all) { all[i].measured = all[i].budget + 1; }),
              Names{"(b) budgets exceeded, of 20"});
    for (const double off : {-1, 1})
      EXPECT_EQ(failed([=](auto& all) { all[i].brute = all[i].cost + off; }), wrong_cost);
  }
}

}  // namespace
}  // namespace gradus
