// The costs of the kernels of a mixture of experts, as plain numbers, as in cost_test.cpp.
#include "tests/kernels/cost_testing.h"

namespace gradus {
namespace {

// 6 tokens in 2 sequences choose 2 of 4 experts each: 24 logits, 12 choices. With a capacity of 1 there are 8
// places, fewer than the choices; with a capacity of 3 there are 24, of which 12 have a token.
constexpr ExpertShape kFew{2, 3, 4, 2, 1}, kMany{2, 3, 4, 2, 3};

TEST(L21_Cost, OfChoicesAndPlaces) {
  constexpr OpClass N = OpClass::Normalization;
  // each choice: compare 4; maximum, minus, exp, sum, divide. Scratch: the experts.
  expect_cost("choose_fwd", cost::choose_experts_fwd(kFew, F32), N, 12 * 9, 4 * (24 + 12) + 48, 48);
  expect_cost("choose_fwd bf16", cost::choose_experts_fwd(kFew, BF16), N, 12 * 9, 2 * (24 + 12) + 48, 48);
  // dlogits; weights, dweights; experts
  expect_cost("choose_bwd", cost::choose_experts_bwd(kFew, F32), N, 48, 4 * (24 + 24) + 48);
  expect_cost("choose_bwd fp64", cost::choose_experts_bwd(kFew, F64), N, 48, 8 * (24 + 24) + 48);
  // experts, slots, tokens. Scratch: a number for each expert and sequence.
  expect_cost("place", cost::place_tokens(kFew), OpClass::Other, 12, 4 * (12 + 12 + 8), 32);
  expect_cost("place", cost::place_tokens(kMany), OpClass::Other, 12, 4 * (12 + 12 + 24), 32);
}

// Rows of 5.
TEST(L21_Cost, OfCombinations) {
  constexpr OpClass O = OpClass::Other;
  EXPECT_EQ(cost::expert_rows(kFew), 8);
  EXPECT_EQ(cost::expert_rows(kMany), 12);
  // times a weight, plus. Rows, y; weights; slots.
  expect_cost("fwd", cost::combine_experts_fwd(kFew, 5, F32), O, 80, 4 * (40 + 30 + 12) + 48);
  expect_cost("fwd bf16", cost::combine_experts_fwd(kMany, 5, BF16), O, 120, 2 * (60 + 30 + 12) + 48);
  // drows: times; dweights: times, plus. Rows, dy, drows; weights, dweights; slots, tokens.
  expect_cost("bwd", cost::combine_experts_bwd(kFew, 5, F32), O, 120, 4 * (40 + 30 + 40 + 24) + 48 + 32);
  expect_cost("bwd fp64", cost::combine_experts_bwd(kMany, 5, F64), O, 180,
              8 * (60 + 30 + 120 + 24) + 48 + 96);
}

TEST(L21_Cost, OfTheBalanceLoss) {
  constexpr OpClass N = OpClass::Normalization;
  // maximum, minus, exp, sum; times f, sum. Logits, experts. Scratch: f (2, 4), and one number per token.
  expect_cost("fwd", cost::balance_loss_fwd(kFew, F32), N, 24 * 6, 4 * 24 + 48, 4 * (8 + 6));
  expect_cost("fwd fp64", cost::balance_loss_fwd(kFew, F64), N, 24 * 6, 8 * 24 + 48, 8 * (8 + 6));
  // and f minus the sum, times p, times a factor
  expect_cost("bwd bf16", cost::balance_loss_bwd(kFew, BF16), N, 24 * 9, 2 * 48 + 48, 4 * 8);
}

}  // namespace
}  // namespace gradus
