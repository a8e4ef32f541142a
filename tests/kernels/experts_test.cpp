// A mixture of experts: which experts each token chooses, and which places tokens get, compared with
// different algorithms for the same.
#include "tests/kernels/experts_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L21_ChooseExperts);
ON_EVERY_DEVICE(L21_PlaceTokens);

// Softmax over the chosen logits, in fp64.
Expected weights_of(const ExpertShape& s, DType T, const std::vector<double>& logits, const Ids& chosen) {
  Expected weights{"weights", {T}, {}, {}};
  for (int64_t t = 0; t < s.tokens(); ++t) {
    const auto x = [&](int64_t j) { return logits[t * s.E + chosen[t * s.chosen + j]]; };
    double sum = 0;
    for (int64_t j = 0; j < s.chosen; ++j) sum += std::exp(x(j) - x(0));
    for (int64_t j = 0; j < s.chosen; ++j) {
      const double p = std::exp(x(j) - x(0)) / sum;
      weights.value.push_back(p);
      // for x below -86.9, e^x may be 0 on cpu and is subnormal on a GPU
      weights.error.push_back(p > 0 ? p * (double(s.chosen) + 8 + x(0) - x(j)) + 0x1p-98 : 0x1p-98);
    }
  }
  return weights;
}

// Tests the weights by the contract and, in each of these calls, the experts, if they are wanted.
void expect_choice(const ExpertShape& s, const Buffer& logits,
                   const std::vector<bool>& experts_wanted = {true}) {
  const DType T = logits.type();
  const std::vector<double> x = logits.values();
  const Ids chosen = chosen_by(s, x);
  for (const bool wanted : experts_wanted) {
    const TestedCall call{"choose_experts_fwd of " + text(s),
                          {weights_of(s, T, x, chosen)},
                          [&](const Ctx& ctx, const std::vector<Out>& out) {
                            IdsOut experts(s.choices());
                            table().choose_experts_fwd(ctx, s, logits.in(),
                                                       wanted ? experts.out() : experts.none(), out[0]);
                            if (wanted) {
                              EXPECT_EQ(experts.values(), std::vector<int32_t>(chosen.begin(), chosen.end()))
                                  << text(s) << name_of(T);
                            }
                          },
                          cost::choose_experts_fwd(s, T)};
    ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
  }
}

TEST_P(L21_ChooseExperts, TheLargestInDescendingOrder) {
  for (const DType T : float_types())
    for (const ExpertShape& s : expert_shapes())
      ASSERT_NO_FATAL_FAILURE(expect_choice(s, Buffer::random(T, s.tokens() * s.E, 1, 5), {true, false}));
}

// Whole numbers from -3 to 3, with zeros of both signs.
TEST_P(L21_ChooseExperts, TheLowerIndexFirstAmongEquals) {
  for (const DType T : float_types())
    for (const ExpertShape& s : expert_shapes()) {
      std::vector<double> x = Buffer::random(DType::F64, s.tokens() * s.E, 2).values();
      for (double& v : x) v = std::clamp(std::trunc(v), -3.0, 3.0);
      ASSERT_NO_FATAL_FAILURE(expect_choice(s, Buffer(T, x)));
      for (double& v : x) v = v < 0 ? -0.0 : 0.0;
      ASSERT_NO_FATAL_FAILURE(expect_choice(s, Buffer(T, x)));
    }
}

// NaN comes before all numbers, so the weights of its token are NaN. Infinities are logits like others, but
// if the largest logit is infinite, its softmax is NaN.
TEST_P(L21_ChooseExperts, OfNaNAndInfinityEachTokenChoosesDistinctExperts) {
  for (const DType T : float_types())
    for (const ExpertShape& s : expert_shapes()) {
      std::vector<double> x = Buffer::random(DType::F64, s.tokens() * s.E, 3).values();
      const double special[] = {NAN, -NAN, INFINITY, -INFINITY};
      for (size_t i = 0; i < x.size(); ++i) {
        const auto t = int64_t(i) / s.E;
        if (t % 4 == 1 && i % 3 == 0) x[i] = special[i % 4];  // some
        if (t % 4 == 2) x[i] = special[t / 4 % 4];            // all
      }
      ASSERT_NO_FATAL_FAILURE(expect_choice(s, Buffer(T, x)));
    }
}

TEST_P(L21_ChooseExperts, Backward) {
  for (const DType T : float_types())
    for (const ExpertShape& s : expert_shapes()) {
      const Ids experts = some_experts(s, 1);
      const Buffer w = Buffer::random(T, s.choices(), 2), dw = Buffer::random(T, s.choices(), 3);
      const std::vector<double> vw = w.values(), vdw = dw.values();
      Expected dlogits{"dlogits", {T}, std::vector<double>(s.tokens() * s.E, 0.0)};
      dlogits.error = dlogits.value;  // exact for experts that were not chosen
      for (int64_t i = 0; i < s.choices(); ++i) {
        const int64_t t = i / s.chosen, at = t * s.E + experts[i];
        double dot = 0, size = 0;
        for (int64_t j = t * s.chosen; j < (t + 1) * s.chosen; ++j)
          dot += vw[j] * vdw[j], size += std::abs(vw[j] * vdw[j]);
        dlogits.value[at] = vw[i] * (vdw[i] - dot);
        dlogits.error[at] = std::abs(vw[i]) * (2 * std::abs(vdw[i]) + (double(s.chosen) + 4) * size);
      }
      const TestedCall call{
          "choose_experts_bwd of " + text(s), {dlogits}, [&](const Ctx& ctx, const std::vector<Out>& out) {
            table().choose_experts_bwd(ctx, s, in(experts), w.in(), dw.in(), out[0]);
          }};
      ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
    }
}

Places places_by_kernel(const ExpertShape& s, const Ids& experts, bool slots_wanted = true,
                        bool tokens_wanted = true) {
  IdsOut slots(s.choices()), tokens(s.places());
  TestCtx ctx(cost::place_tokens(s));
  ctx.poison_scratch();
  table().place_tokens(ctx, s, in(experts), slots_wanted ? slots.out() : slots.none(),
                       tokens_wanted ? tokens.out() : tokens.none());
  EXPECT_TRUE(ctx.kept_to_its_scratch());
  EXPECT_TRUE((slots_wanted || slots.untouched()) && (tokens_wanted || tokens.untouched()));
  const std::vector<int32_t> s_got = slots.values(), t_got = tokens.values();
  return {{s_got.begin(), s_got.end()}, {t_got.begin(), t_got.end()}};
}

TEST_P(L21_PlaceTokens, AChoicesPlaceIsHowManyBeforeItFellOnItsExpert) {
  for (const ExpertShape& s : expert_shapes())
    for (const bool skewed : {false, true})
      for (const int threads : {1, 3}) {
        const OpenMpThreads as_many(threads);
        const Ids experts = some_experts(s, 1, skewed);
        const Places expected = places_of(s, experts);
        const bool drops = std::count(expected.slots.begin(), expected.slots.end(), kElsewhere) > 0;
        if (skewed && s.choices() > 0 && s.capacity < s.T && s.chosen < s.E) {
          EXPECT_TRUE(drops) << text(s) << "this shape should drop tokens";
        }
        if (s.capacity == s.T) {
          EXPECT_FALSE(drops);
        }
        for (const auto& [slots, tokens] :
             {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
          const Places got = places_by_kernel(s, experts, slots, tokens);
          if (slots) {
            ASSERT_EQ(got.slots, expected.slots) << text(s);
          }
          if (tokens) {
            ASSERT_EQ(got.tokens, expected.tokens) << text(s);
          }
        }
      }
}

// Two experts with one place each. Choices (token, choice): sequence 0: (0: 0 1) (1: 1 0) (2: 0 1); sequence
// 1: (3: 1 0) (4: 0 1) (5: 0 1).
TEST_P(L21_PlaceTokens, TheFirstToComeIsServedInEachSequence) {
  const Places got = places_by_kernel({2, 3, 2, 2, 1}, {0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1});
  constexpr int32_t x = kElsewhere;
  EXPECT_EQ(got.slots, (Ids{0, 2, x, x, x, x, 3, 1, x, x, x, x}));
  EXPECT_EQ(got.tokens, (Ids{0, 3, 0, 3}));
}

// The choices of later tokens and of other sequences do not change a token's places.
TEST_P(L21_PlaceTokens, APlaceDependsOnNoLaterTokenAndOnNoOtherSequence) {
  const ExpertShape s{3, 40, 4, 2, 9};
  const Ids experts = some_experts(s, 1), others = some_experts(s, 2);
  const Ids slots = places_by_kernel(s, experts).slots;
  for (const int64_t from : {1, 17, 39}) {
    Ids changed = others;
    const int64_t first = s.T * s.chosen, end = first + from * s.chosen;  // of sequence 1
    std::copy(experts.begin() + first, experts.begin() + end, changed.begin() + first);
    const Ids got = places_by_kernel(s, changed).slots;
    EXPECT_NE(got, slots);
    EXPECT_TRUE(std::equal(slots.begin() + first, slots.begin() + end, got.begin() + first)) << from;
  }
}

TEST_P(L21_PlaceTokens, AnExpertThatDoesNotExistIsNamed) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints the message and then does no more work for this process";
  const ExpertShape s{1, 2, 3, 2, 1};
  const Buffer w = Buffer::random(DType::F32, 6, 1);
  Buffer y = Buffer::zeros(DType::F32, 6);
  TestCtx ctx(Cost{.scratch = 4096});
  for (const int32_t bad : {-1, 3, kElsewhere, INT32_MAX}) {
    const Ids experts{0, 1, 2, bad};
    const std::string text = "expert " + std::to_string(bad);
    expect_refused(text, [&] { places_by_kernel(s, experts); });
    expect_refused(
        text, [&] { table().choose_experts_bwd(ctx, s, in(experts), w.in(), w.in(), y.out(Write::Set)); });
    expect_refused(text,
                   [&] { table().balance_loss_fwd(ctx, s, w.in(), in(experts), {}, y.out(Write::Set), 1); });
    expect_refused(text, [&] {
      table().balance_loss_bwd(ctx, s, w.in(), in(experts), {}, w.in(), y.out(Write::Set), 1);
    });
  }
}

// For each kernel, because each begins with the check.
TEST_P(L21_ChooseExperts, AShapeThatNoMixtureHasIsRefused) {
  Buffer any = Buffer::zeros(DType::F32, 8);
  const CBuf x = any.in(), ids{x.p, DType::I32};
  const Out y = any.out(Write::Set), out_ids{y.p, DType::I32, Write::Set};
  TestCtx ctx(Cost{.scratch = 4096});
  const std::pair<ExpertShape, const char*> refused[] = {
      {{-1, 2, 3, 1, 1}, "-1 sequences of 2 tokens; sizes must not be negative"},
      {{1, -2, 3, 1, -2}, "1 sequences of -2 tokens; sizes must not be negative"},
      {{0, 2, 3, 0, 1}, "each token chooses 0 of 3 experts; it must choose at least 1, and at most all"},
      {{0, 2, 3, 4, 1}, "each token chooses 4 of 3 experts"},
      {{0, 2, 0, 0, 1}, "each token chooses 0 of 0 experts"},
      {{0, 2, 0, 1, 1}, "each token chooses 1 of 0 experts"},
      {{0, 2, 3, 1, -1}, "an expert has -1 places for a sequence of 2 tokens; the capacity must be from 0"},
      {{0, 2, 3, 1, 3}, "an expert has 3 places for a sequence of 2 tokens"},
      {{1 << 16, 1 << 15, 1, 1, 0}, "2147483648 tokens and 0 places of experts; both are numbered in int32"},
      {{1 << 10, 1 << 11, 1 << 10, 1, 1 << 11}, "2097152 tokens and 2147483648 places of experts"}};
  for (const auto& [s, part] : refused) {
    const auto expect = [&, part = std::string(part), s = s](const char* op, const auto& call) {
      expect_refused(std::string(op) + ": " + part, [&] { call(s); });
    };
    expect("choose_experts_fwd",
           [&](const ExpertShape& s) { table().choose_experts_fwd(ctx, s, x, out_ids, y); });
    expect("choose_experts_bwd",
           [&](const ExpertShape& s) { table().choose_experts_bwd(ctx, s, ids, x, x, y); });
    expect("place_tokens",
           [&](const ExpertShape& s) { table().place_tokens(ctx, s, ids, out_ids, out_ids); });
    expect("combine_experts_fwd",
           [&](const ExpertShape& s) { table().combine_experts_fwd(ctx, s, 2, x, ids, x, y); });
    expect("combine_experts_bwd",
           [&](const ExpertShape& s) { table().combine_experts_bwd(ctx, s, 2, x, ids, ids, x, x, y, y); });
    expect("balance_loss_fwd",
           [&](const ExpertShape& s) { table().balance_loss_fwd(ctx, s, x, ids, x, y, 1); });
    expect("balance_loss_bwd",
           [&](const ExpertShape& s) { table().balance_loss_bwd(ctx, s, x, ids, x, x, y, 1); });
  }
}

TEST_P(L21_PlaceTokens, NothingIsAddedToIndices) {
  Ids ids(4, 0);
  const Buffer x = Buffer::zeros(DType::F32, 4);
  const ExpertShape none{0, 1, 2, 1, 1};
  const Out set{ids.data(), DType::I32, Write::Set}, add{ids.data(), DType::I32, Write::Add};
  TestCtx ctx;
  const char* const end = " are replaced; Write::Add has no meaning here";
  expect_refused(std::string("choose_experts_fwd: experts") + end, [&] {
    table().choose_experts_fwd(ctx, none, x.in(), add, {nullptr, DType::F32});
  });
  expect_refused(std::string("place_tokens: slots") + end,
                 [&] { table().place_tokens(ctx, none, in(ids), add, set); });
  expect_refused(std::string("place_tokens: tokens") + end,
                 [&] { table().place_tokens(ctx, none, in(ids), set, add); });
}

}  // namespace
}  // namespace gradus
