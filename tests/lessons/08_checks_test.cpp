// Lesson 08's own checks: right values pass, and each wrong one is a FAILED line of its own.
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
  EXPECT_EQ(failed({.values = one_more}), Names{"chain of 5, from the start: values"});
  const auto one_less = [](const Chain& c) { return live_values(c) - (c.n == 400); };
  EXPECT_EQ(failed({.values = one_less}), Names{"chain of 400, of the root of n: values"});
  const auto no_less = [](const Chain& c) { return c.n == 5 && c.segments.size() == 2 ? 6 : live_values(c); };
  EXPECT_EQ(failed({.values = no_less}), Names{"chain of 5, 2 and 3: values"});
  const auto more = [](const Chain& c, int64_t b) { return activation_bytes(c, b) + (c.n == 1600); };
  EXPECT_EQ(failed({.bytes = more}), Names{"chain of 1600: bytes of activations"});
}

// A run with each block by itself, and what is planted in it.
TEST(L08_Checks, APolicyThatIsNotAsPredictedFails) {
  const TransformerConfig c = model(4);
  const Sizes sizes{c, 2, 24};
  const Policy each{"each", every(1, 4)}, all = policies(4).front();
  const Counted is = count_on_meta(c, 2, each);
  const int64_t again = is.flops - count_on_meta(c, 2, all).flops;
  const PolicyRun right{is, {3, 2, 1}, std::vector<double>(size_t(c.parameter_count()), 0.5)};
  const auto failed = [&](const std::function<void(PolicyRun&, int64_t&)>& plant,
                          const std::string& skip = "") {
    PolicyRun run = right;
    int64_t flops = again;
    plant(run, flops);
    return failed_checks([&](Report& r) { check_policy(each, run, flops, right, sizes, skip, r); });
  };
  const Names other{"each: numbers that are other bits"};
  EXPECT_EQ(failed([](PolicyRun&, int64_t&) {}), Names{});
  for (const int64_t off : {-4, 4}) {
    EXPECT_EQ(failed([=](PolicyRun& r, int64_t&) { r.counted.saved += off; }),
              Names{"each: bytes after the forward pass"});
    EXPECT_EQ(failed([=](PolicyRun& r, int64_t&) { r.counted.most += off; }),
              Names{"each: bytes of activations at the most"});
    EXPECT_EQ(failed([=](PolicyRun&, int64_t& flops) { flops += off; }),
              Names{"each: FLOPs of what runs again"});
  }
  for (const size_t at : {0, 1, 2})
    EXPECT_EQ(failed([=](PolicyRun& r, int64_t&) { r.losses[at] *= 1 + 0x1p-50; }), other) << "loss " << at;
  for (const size_t at : {size_t(0), right.gradients.size() - 1}) {
    const auto last_bit = [=](PolicyRun& r, int64_t&) { r.gradients[at] *= 1 + 0x1p-50; };
    EXPECT_EQ(failed(last_bit), other) << "gradient " << at;
    EXPECT_EQ(failed(last_bit, "no data"), Names{});
  }
  // Gradients of which neither run has any are not equal: they were not compared.
  const PolicyRun none{is, {3, 2, 1}, {}};
  EXPECT_EQ(failed_checks([&](Report& r) { check_policy(each, none, again, none, sizes, "", r); }), other);
}

// The lesson's own checks of its choices.
TEST(L08_Checks, AChoiceThatIsTooLargeOrTooDearFails) {
  RecordProperty("exercise", "08.6");
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
            Names{"budgets that are exceeded, of 20"})
      << "what is measured counts, not what is predicted";
  EXPECT_EQ(right.back().cost, 0) << "all is kept";
  const Checked failed(right, budgets_table);
  const Names unlike_the_best{"FLOPs again, off those of the best of all policies"};
  const auto nothing = [](auto& choices) {
    for (BudgetChoice& c : choices) c.brute = std::nullopt;
  };
  EXPECT_EQ(failed(nothing), unlike_the_best) << "nothing to compare with";
  for (const size_t i : {0u, 13u, 19u}) {
    EXPECT_EQ(failed([=](auto& all) { all[i].measured = all[i].budget; }), Names{}) << "as much as there is";
    EXPECT_EQ(failed([=](auto& all) { all[i].measured = all[i].budget + 1; }),
              Names{"budgets that are exceeded, of 20"});
    for (const double off : {-1, 1})
      EXPECT_EQ(failed([=](auto& all) { all[i].brute = all[i].cost + off; }), unlike_the_best);
  }
}

}  // namespace
}  // namespace gradus
