// Attention against entries.inc: every combination of the outputs' Writes, any layout, sizes just below and
// above every block, all with the dropped weights of the formula; causality, large scores, rejected calls.
#include "tests/kernels/attention_formula.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L03_Attention);
ON_EVERY_DEVICE(L15_GroupedAttention);

// Three layouts: packed (with other tensors between the heads), one array per head, time outermost with gaps.
// There is one head of keys and values for each `group` heads of queries.
AttentionShape shape_of(int64_t B, int64_t H, int64_t T, int64_t D, Mask mask, float dropout = 0,
                        int layout = 0, int64_t group = 1) {
  const int64_t KV = H / group, C = H * D, row = C + 2 * KV * D, line = D + 1, head = T * line + 2;
  const HeadLayout qkv[] = {{T * row, D, row}, {C * T, T * D, D}, {C + 1, D, B * (C + 1) + 3}};
  const HeadLayout y[] = {{T * C, D, C}, {C * T, T * D, D}, {H * head + 5, head, line}};
  return {.B = B,
          .H = H,
          .KV = KV,
          .T = T,
          .D = D,
          .qkv = qkv[layout],
          .y = y[layout],
          .scale = 0.8f / std::sqrt(float(D)),
          .mask = mask,
          .dropout = dropout,
          .key = {.seed = 0x8123'4567'89AB'CDEF,
                  .ordinal = 0x80'0003,
                  .first_sample = 0x8'0000'0005,
                  .first_element = layout == 0 ? 0 : (layout + (int64_t(1) << 34)) * T * T}};  // later heads
}

std::string text_of(Saves saves, const AttentionShape& s) {
  std::ostringstream text;
  text << (saves == Saves::Probs ? "attention_plain" : "attention_flash") << " B " << s.B << " H " << s.H
       << " KV " << s.KV << " T " << s.T << " D " << s.D << (s.mask == Mask::Causal ? " causal" : "")
       << " dropout " << s.dropout << " time " << s.qkv.time;
  return text.str();
}
void forward(Saves saves, const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out saved, Out y) {
  if (saves == Saves::Probs)
    table().attention_plain_fwd(ctx, s, q, k, v, saved, y);
  else
    table().attention_flash_fwd(ctx, s, q, k, v, y, saved);
}

using Threads = std::vector<int>;
void expect_forward(const AttentionFormula& f, Saves saves, const std::vector<Way>& ways,
                    const Threads& threads = {1, 3}) {
  const Buffer q(f.t, f.q), k(f.t, f.k), v(f.t, f.v);
  const bool plain = saves == Saves::Probs;
  const TestedCall call{text_of(saves, f.s),
                        {plain ? f.probs : f.lse, plain ? f.y : f.flash_y},
                        [&](const Ctx& c, const std::vector<Out>& out) {
                          forward(saves, c, f.s, q.in(), k.in(), v.in(), out[0], out[1]);
                        },
                        plain ? cost::attention_plain_fwd(f.s, f.t) : cost::attention_flash_fwd(f.s, f.t)};
  AttentionCtx ctx(call.cost);
  expect_contract(call, ways, ctx, threads);
}

void expect_backward(const AttentionFormula& f, Saves saves, const std::vector<Way>& ways,
                     const Threads& threads = {1, 3}) {
  const DType t = f.t;
  const Buffer q(t, f.q), k(t, f.k), v(t, f.v), dy(t, f.dy), y(t, f.saved_y), probs(t, f.saved_probs),
      lse(stat(t), f.saved_lse);
  const auto [dq, dk, dv] = f.backward(saves);
  const bool plain = saves == Saves::Probs;
  const TestedCall call{text_of(saves, f.s),
                        {dq, dk, dv},
                        [&](const Ctx& c, const std::vector<Out>& d) {
                          if (plain)
                            table().attention_plain_bwd(c, f.s, q.in(), k.in(), v.in(), probs.in(), dy.in(),
                                                        d[0], d[1], d[2]);
                          else
                            table().attention_flash_bwd(c, f.s, q.in(), k.in(), v.in(), y.in(), lse.in(),
                                                        dy.in(), d[0], d[1], d[2]);
                        },
                        plain ? cost::attention_plain_bwd(f.s, t) : cost::attention_flash_bwd(f.s, t)};
  AttentionCtx ctx(call.cost);
  expect_contract(call, ways, ctx, threads);
}

TEST_P(L03_Attention, EachOutputHasAWriteOfItsOwnAndCanBeLeftOut) {
  for (const DType t : {DType::F32, DType::BF16}) {
    const AttentionFormula f(shape_of(1, 2, 34, 5, Mask::Causal, 0.3f, 2), t);
    for (const Saves saves : kBothKinds) {
      expect_forward(f, saves, all_ways({f.y, f.y}));
      expect_backward(f, saves, all_ways({f.y, f.y, f.y}));
    }
  }
}

// Forward and backward, with Writes that change from one output to the next.
void expect_all(const AttentionShape& s, const std::vector<DType>& types = float_types(),
                const Threads& threads = {1, 3}) {
  static int turn = 0;
  const auto next = [] { return 1 + ++turn % 2; };
  for (const DType t : types) {
    const AttentionFormula f(s, t);
    ++turn;
    for (const Saves saves : kBothKinds) {
      expect_forward(f, saves, {{next(), next()}}, threads);
      expect_backward(f, saves, {{next(), next(), next()}}, threads);
    }
  }
}

// CPU: blocks of 64 queries (plain), of 12 and 96 queries, 32 keys and 32 dimensions (flash). GPU: tiles of
// 32 or 64 rows and 64 or 128 dimensions (flash), of 8 rows, 256 others and 16 or 32 dimensions (plain). Four
// weights share a draw of random bits.
TEST_P(L03_Attention, SizesOnBothSidesOfEveryBlock) {
  constexpr struct {
    int64_t T, D;
  } kSizes[] = {{1, 3},   {2, 1},   {7, 15},  {8, 16},   {9, 17},  {31, 32}, {32, 33}, {33, 63},
                {63, 5},  {64, 64}, {65, 65}, {10, 128}, {127, 2}, {128, 1}, {129, 3}, {257, 1},
                {193, 1}, {11, 95}, {12, 96}, {13, 97},  {95, 31}, {96, 4},  {97, 6}};
  int i = 0;
  for (const auto [T, D] : kSizes) {
    const Mask mask = i % 2 == 0 ? Mask::Causal : Mask::None;
    expect_all(shape_of(T < 60 ? 2 : 1, T > 100 ? 1 : 1 + i % 3, T, D, mask, T > 100 || i % 4 < 2 ? 0.25f : 0,
                        i % 3),
               {DType::F32, float_types()[i % float_types().size()]});
    ++i;
  }
}

// attention_flash takes 384 keys at a time, and in forward 384 queries.
TEST(L15_AttentionOnCpu, SizesOnBothSidesOfATileOfKeys) {
  for (const auto& [T, group] : {std::pair(383, 1), {384, 2}, {385, 1}, {385, 2}, {769, 1}})
    for (const Mask mask : {Mask::None, Mask::Causal})
      expect_all(shape_of(1, group, T, 3, mask, mask == Mask::None ? 0.25f : 0, 0, group), {DType::F32});
}

// The calls that cuDNN takes if it is present: 16-bit dtypes, multiples of 8 dimensions, all outputs Set.
// Layout 2 has lines that do not begin at multiples of 16 bytes.
TEST_P(L15_GroupedAttention, In16BitsWithoutDropout) {
  for (const DType t : {DType::BF16, DType::F16})
    for (const Mask mask : {Mask::Causal, Mask::None})
      for (const AttentionShape& s :
           {shape_of(2, 2, 1, 8, mask), shape_of(1, 2, 2, 16, mask, 0, 0, 2),
            shape_of(2, 4, 65, 24, mask, 0, 1, 2), shape_of(1, 1, 128, 64, mask),
            shape_of(1, 2, 33, 128, mask, 0, 1, 2), shape_of(1, 2, 129, 8, mask, 0, 2)}) {
        const AttentionFormula f(s, t);
        expect_forward(f, Saves::Lse, {{1, 1}});
        expect_backward(f, Saves::Lse, {{1, 1, 1}});
      }
}

TEST_P(L03_Attention, NothingIsNoError) {
  for (const AttentionShape& s : {shape_of(0, 2, 3, 4, Mask::Causal), shape_of(2, 1, 0, 4, Mask::None, 0.5f)})
    expect_all(s);
}

// Heads so wide that a GPU's block of attention_plain has room for only two rows, and the CPU's workspace has
// no room for every thread.
TEST_P(L03_Attention, PlainHasWideHeads) {
  const AttentionFormula f(shape_of(4, 3, 5, 2050, Mask::Causal, 0.25f), DType::F32);
  expect_forward(f, Saves::Probs, {{2, 1}}, {12});
  expect_backward(f, Saves::Probs, {{1, 2, 1}}, {12});
}

TEST_P(L15_GroupedAttention, AnyScaleIsRight) {
  for (const float scale : {-0.7f, 0.0f})
    for (const Mask mask : {Mask::Causal, Mask::None}) {
      AttentionShape s = shape_of(1, 2, 40, 6, mask, 0, 0, 2);
      s.scale = scale;
      expect_all(s, {DType::F32});
    }
}

// 2 and 8 heads of queries per head of keys and values, of which there are 2 and 1.
TEST_P(L15_GroupedAttention, EachOutputHasAWriteOfItsOwnAndCanBeLeftOut) {
  for (const auto& [H, group] : {std::pair(4, 2), {8, 8}})
    for (const DType t : float_types()) {
      const AttentionFormula f(shape_of(1, H, 34, 5, Mask::Causal, 0.3f, group == 2 ? 2 : 0, group), t);
      for (const Saves saves : kBothKinds) {
        expect_forward(f, saves, all_ways({f.y, f.y}));
        expect_backward(f, saves, all_ways({f.y, f.y, f.y}));
      }
    }
}

TEST_P(L15_GroupedAttention, SizesOnBothSidesOfEveryBlock) {
  constexpr struct {
    int64_t B, H, group, T, D;
  } kSizes[] = {{2, 4, 2, 1, 3},  {2, 6, 3, 8, 16}, {1, 6, 2, 9, 17},  {2, 8, 8, 32, 5},  {1, 4, 4, 33, 2},
                {1, 2, 2, 64, 7}, {1, 4, 2, 65, 3}, {1, 2, 2, 10, 65}, {1, 2, 2, 128, 1}, {1, 3, 3, 129, 1}};
  int i = 0;
  for (const auto [B, H, group, T, D] : kSizes) {
    expect_all(
        shape_of(B, H, T, D, i % 2 == 0 ? Mask::Causal : Mask::None, i % 4 < 2 ? 0.25f : 0, i % 3, group),
        {DType::F32, float_types()[i % float_types().size()]});
    ++i;
  }
}

// A GPU's block of attention_plain has room for the sums over a group and only two rows.
TEST_P(L15_GroupedAttention, PlainHasWideHeads) {
  const AttentionFormula f(shape_of(2, 4, 5, 2050, Mask::Causal, 0.25f, 0, 2), DType::F32);
  expect_forward(f, Saves::Probs, {{2, 1}}, {12});
  expect_backward(f, Saves::Probs, {{1, 2, 1}}, {12});
}

TEST_P(L15_GroupedAttention, HeadsThatCannotBeSharedAreRefused) {
  const Buffer any = Buffer::zeros(DType::F32, 1);
  const CBuf x = any.in();
  const Out none{nullptr, DType::F32};
  for (const auto& [H, KV] : {std::pair(4, 3), {4, 0}, {4, -2}, {2, 4}, {0, 1}, {0, 0}, {-2, 2}, {-4, -2}}) {
    AttentionShape s = shape_of(0, 4, 2, 2, Mask::None);
    s.H = H, s.KV = KV;
    const Backend& b = table();
    TestCtx ctx;
    const auto expect = [&, H = H, KV = KV](const std::string& op, const std::function<void()>& f) {
      expect_refused(op + ": " + std::to_string(H) + " heads of queries cannot share " + std::to_string(KV),
                     f);
    };
    expect("attention_plain_fwd", [&] { b.attention_plain_fwd(ctx, s, x, x, x, none, none); });
    expect("attention_plain_bwd", [&] { b.attention_plain_bwd(ctx, s, x, x, x, x, x, none, none, none); });
    expect("attention_flash_fwd", [&] { b.attention_flash_fwd(ctx, s, x, x, x, none, none); });
    expect("attention_flash_bwd", [&] { b.attention_flash_bwd(ctx, s, x, x, x, x, x, x, none, none, none); });
  }
}

TEST(L15_GroupedAttentionOnCpu, AThreadDoesSeveralHeads) {
  expect_all(shape_of(3, 6, 66, 3, Mask::Causal, 0.25f, 2, 3), float_types(), {1, 2, 5});
}

TEST(L03_AttentionOnCpu, AThreadDoesSeveralHeads) {
  for (const Mask mask : {Mask::None, Mask::Causal})
    expect_all(shape_of(3, 2, 66, 3, mask, 0.25f, mask == Mask::None ? 1 : 2), float_types(), {1, 2, 5});
}

struct Attended {  // attention of packed q, k and v in fp32
  std::vector<double> saved, y;
  Attended(Saves saves, const AttentionShape& s, const std::vector<double>& qkv) {
    const int64_t C = s.H * s.D, saved_size = s.B * s.H * s.T * (saves == Saves::Probs ? s.T : 1);
    const Buffer x(DType::F32, qkv);
    Buffer save = Buffer::zeros(DType::F32, saved_size), out = Buffer::zeros(DType::F32, s.B * s.T * C);
    TestCtx ctx;
    forward(saves, ctx, s, x.in(), x.in().from(C), x.in().from(2 * C), save.out(Write::Set),
            out.out(Write::Set));
    saved = save.values(), y = out.values();
  }
};

TEST_P(L03_Attention, LargeScoresDoNotOverflow) {  // without the largest score, e^1000 overflows
  const std::vector<double> x = Buffer::random(DType::F32, 7 * 12, 1, 64).values();
  for (const Saves saves : kBothKinds)
    for (const double y : Attended(saves, shape_of(1, 1, 7, 4, Mask::Causal), x).y)
      ASSERT_TRUE(std::isfinite(y)) << y;
}

// The scores of the first tile of keys, or two, overflow to -infinity: these weights are 0, and the others
// count.
TEST_P(L03_Attention, ScoresOfMinusInfinityAreWeightsOfZero) {
  constexpr int64_t kT = 500, kLost = 450;
  std::vector<double> x;
  for (int64_t t = 0; t < kT; ++t) x.insert(x.end(), {1e25, t < kLost ? -1e25 : 0.0, double(t)});
  for (const Saves saves : kBothKinds)
    for (const double y : Attended(saves, shape_of(1, 1, kT, 1, Mask::None), x).y)
      ASSERT_NEAR(y, (kLost + kT - 1) / 2.0, 1e-3);
}

TEST_P(L03_Attention, AQueryDoesNotSeeWhatFollowsIt) {
  RecordProperty("exercise", "03.3");
  const AttentionShape s = shape_of(1, 2, 70, 4, Mask::Causal);
  const std::vector<double> x = Buffer::random(DType::F32, 70 * 24, 1).values();
  for (const Saves saves : kBothKinds) {
    const std::string name = saves == Saves::Probs ? "attention_plain" : "attention_flash";
    const Attended before(saves, s, x);
    for (const int64_t t : {0, 1, 63, 64, 69}) {
      std::vector<double> changed = x;
      for (int64_t i = (t + 1) * 24; i < 70 * 24; ++i) changed[i] += 1;  // everything after t
      const Attended after(saves, s, changed);
      for (int64_t i = 0; i < (t + 1) * 8; ++i)
        ASSERT_EQ(after.y[i], before.y[i]) << name << ": the output at time " << i / 8
                                           << " depends on a later key; query t sees keys 0 to t";
      for (int64_t j = t + 1; j < 70 && saves == Saves::Probs; ++j)
        ASSERT_EQ(before.saved[t * 70 + j], 0) << "query " << t << ", key " << j;
    }
  }
}

TEST_P(L03_Attention, WhatCannotBeDoneIsRefusedWithAHint) {
  if (&table() == &cpu_backend()) GTEST_SKIP() << "the cpu has no such limits";
  const auto attend = [](Saves saves, const AttentionShape& s) {
    Buffer any = Buffer::zeros(DType::F32, 1);  // no kernel reads it
    const Out out = any.out(Write::Set);
    TestCtx ctx;
    forward(saves, ctx, s, any.in(), any.in(), any.in(), out, out);
  };
  expect_refused("heads of 129", [&] { attend(Saves::Lse, shape_of(1, 1, 2, 129, Mask::None)); });
  expect_refused("attention_flash", [&] { attend(Saves::Probs, shape_of(1, 1, 9000, 2, Mask::None)); });
}

}  // namespace
}  // namespace gradus
