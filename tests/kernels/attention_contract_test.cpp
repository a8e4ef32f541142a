// Attention against kernels.h: every Write of every output beside every other, any layout, sizes on both
// sides of every block, all of it with the dropped weights of the formula.
#include <omp.h>

#include "tests/kernels/attention_formula.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L03_AttentionContract);

// Three layouts: packed (what lies between belongs to others), one array a head, time outermost with gaps.
AttentionShape shape_of(int64_t B, int64_t H, int64_t T, int64_t D, Mask mask, float dropout, int layout) {
  const int64_t C = H * D, line = D + 1, head = T * line + 2;
  const HeadLayout qkv[] = {{T * 3 * C, D, 3 * C}, {C * T, T * D, D}, {C + 1, D, B * (C + 1) + 3}};
  const HeadLayout y[] = {{T * C, D, C}, {C * T, T * D, D}, {H * head + 5, head, line}};
  return {.B = B,
          .H = H,
          .T = T,
          .D = D,
          .qkv = qkv[layout],
          .y = y[layout],
          .scale = 0.8f / std::sqrt(float(D)),
          .mask = mask,
          .dropout = dropout,
          .key = {.seed = 0x8123'4567'89AB'CDEF, .ordinal = 0x80'0003, .first_sample = 0x8'0000'0005}};
}

std::string text_of(Saves saves, const AttentionShape& s) {
  std::ostringstream text;
  text << (saves == Saves::Probs ? "attention_plain" : "attention_flash") << " B " << s.B << " H " << s.H
       << " T " << s.T << " D " << s.D << (s.mask == Mask::Causal ? " causal" : "") << " dropout "
       << s.dropout << " time " << s.qkv.time;
  return text.str();
}

void expect_forward(TestCtx& ctx, const AttentionFormula& f, Saves saves, Wish save_wish, Wish y_wish) {
  const DType t = f.t, stats = t == DType::F64 ? t : DType::F32;
  const Buffer q(t, f.q), k(t, f.k), v(t, f.v);
  Output saved(saves == Saves::Probs ? t : stats, save_wish, saves == Saves::Probs ? f.probs : f.lse),
      y(t, y_wish, f.y);
  if (saves == Saves::Probs)
    table().attention_plain_fwd(ctx, f.s, q.in(), k.in(), v.in(), saved.out(), y.out());
  else
    table().attention_flash_fwd(ctx, f.s, q.in(), k.in(), v.in(), y.out(), saved.out());
  const std::string text = text_of(saves, f.s);
  saved.expect(text + " saved");
  y.expect(text + " y");
}

void expect_backward(TestCtx& ctx, const AttentionFormula& f, Saves saves,
                     const AttentionFormula::Gradients& g, const std::array<Wish, 3>& wishes) {
  const DType t = f.t;
  const Buffer q(t, f.q), k(t, f.k), v(t, f.v), dy(t, f.dy), y(t, f.saved_y), probs(t, f.saved_probs),
      lse(t == DType::F64 ? t : DType::F32, f.saved_lse);
  Output dq(t, wishes[0], g.dq), dk(t, wishes[1], g.dk), dv(t, wishes[2], g.dv);
  if (saves == Saves::Probs)
    table().attention_plain_bwd(ctx, f.s, q.in(), k.in(), v.in(), probs.in(), dy.in(), dq.out(), dk.out(),
                                dv.out());
  else
    table().attention_flash_bwd(ctx, f.s, q.in(), k.in(), v.in(), y.in(), lse.in(), dy.in(), dq.out(),
                                dk.out(), dv.out());
  const std::string text = text_of(saves, f.s);
  dq.expect(text + " dq"), dk.expect(text + " dk"), dv.expect(text + " dv");
}

TEST_P(L03_AttentionContract, EachOutputHasAWriteOfItsOwnAndCanBeLeftOut) {
  AttentionCtx ctx;
  const AttentionShape s = shape_of(1, 2, 34, 5, Mask::Causal, 0.3f, 2);
  for (const DType t : {DType::F32, DType::BF16}) {
    const AttentionFormula f(s, t);
    for (const Saves saves : kBothKinds) {
      for (const Wish saved : kWishes)
        for (const Wish y : kWishes) expect_forward(ctx, f, saves, saved, y);
      const auto g = f.backward(saves);
      for (const Wish dq : kWishes)
        for (const Wish dk : kWishes)
          for (const Wish dv : kWishes) expect_backward(ctx, f, saves, g, {dq, dk, dv});
    }
  }
}

// Forward and backward, with Writes that change from one to the next.
void expect_all(TestCtx& ctx, const AttentionShape& s, const std::vector<DType>& types = float_types()) {
  static int turn = 0;
  const auto next = [] { return kWritten[++turn % 2]; };
  for (const DType t : types) {
    const AttentionFormula f(s, t);
    ++turn;
    for (const Saves saves : kBothKinds) {
      expect_forward(ctx, f, saves, next(), next());
      expect_backward(ctx, f, saves, f.backward(saves), {next(), next(), next()});
    }
  }
}

// On the CPU queries go by 64, keys by 128. On a GPU tiles are 32 or 64 rows and 64 or 128 dimensions
// (flash), 8 rows, 256 others, 16 or 32 dimensions (plain). Four weights share a draw of random words.
TEST_P(L03_AttentionContract, SizesOnBothSidesOfEveryBlock) {
  AttentionCtx ctx;
  constexpr struct {
    int64_t T, D;
  } kSizes[] = {{1, 3},   {2, 1},   {7, 15},   {8, 16},  {9, 17},  {31, 32}, {32, 33}, {33, 63}, {63, 5},
                {64, 64}, {65, 65}, {10, 128}, {127, 2}, {128, 1}, {129, 3}, {257, 1}, {193, 1}};
  int i = 0;
  for (const auto [T, D] : kSizes) {
    const Mask mask = i % 2 == 0 ? Mask::Causal : Mask::None;
    expect_all(ctx,
               shape_of(T < 60 ? 2 : 1, T > 100 ? 1 : 1 + i % 3, T, D, mask, T > 100 || i % 4 < 2 ? 0.25f : 0,
                        i % 3),
               {DType::F32, float_types()[i % float_types().size()]});
    ++i;
  }
}

TEST_P(L03_AttentionContract, NothingIsNoError) {
  AttentionCtx ctx;
  for (const AttentionShape& s :
       {shape_of(0, 2, 3, 4, Mask::Causal, 0, 0), shape_of(2, 1, 0, 4, Mask::None, 0.5f, 0)})
    expect_all(ctx, s);
}

// Heads so wide that a GPU's block of attention_plain has room for two rows only, and the CPU's workspace not
// for every thread.
TEST_P(L03_AttentionContract, PlainHasWideHeads) {
  AttentionCtx ctx;
  const int threads = omp_get_max_threads();
  omp_set_num_threads(12);
  const AttentionFormula f(shape_of(4, 3, 5, 2050, Mask::Causal, 0.25f, 0), DType::F32);
  expect_forward(ctx, f, Saves::Probs, Wish::Add, Wish::Set);
  expect_backward(ctx, f, Saves::Probs, f.backward(Saves::Probs), {Wish::Set, Wish::Add, Wish::Set});
  omp_set_num_threads(threads);
}

TEST(L03_AttentionContractOnCpu, AThreadDoesSeveralHeads) {
  AttentionCtx ctx;
  const int threads = omp_get_max_threads();
  for (const int n : {1, 2, 5}) {
    omp_set_num_threads(n);
    expect_all(ctx, shape_of(3, 2, 66, 3, n == 1 ? Mask::None : Mask::Causal, 0.25f, n % 3));
  }
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace gradus
