// The attention kernels, plain and flash: the formula in fp64 as reference for every dtype, causality,
// dropout, packed layouts.
#include <omp.h>

#include "kernels/philox.h"
#include "tests/refusal_testing.h"
#include "tests/standin/turn.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L03_Attention);
ON_STANDINS_TOO(L03_Attention);

AttentionShape shape_of(int64_t B, int64_t H, int64_t T, int64_t D, Mask mask, float dropout = 0) {
  const int64_t C = H * D;
  return {.B = B,
          .H = H,
          .T = T,
          .D = D,
          .qkv = {T * 3 * C, D, 3 * C},
          .y = {T * C, D, C},
          .scale = 1 / std::sqrt(float(D)),
          .mask = mask,
          .dropout = dropout,
          .key = {9, 2}};
}

CBuf part(const CBuf& b, int64_t n) { return {b.as<char>() + n * size_of(b.t), b.t}; }
Out part(const Out& o, int64_t n) { return {o.as<char>() + n * size_of(o.t), o.t, o.w}; }

enum class Kind { Plain, Flash };
constexpr Kind kBoth[] = {Kind::Plain, Kind::Flash};
std::string name_of(Kind kind) { return kind == Kind::Plain ? "attention_plain" : "attention_flash"; }
int64_t saved_size(Kind kind, const AttentionShape& s) {
  return s.B * s.H * s.T * (kind == Kind::Plain ? s.T : 1);
}
DType saved_type(Kind kind, DType t) { return kind == Kind::Plain || t == DType::F64 ? t : DType::F32; }

// On packed qkv (B, T, 3C). saved: the probabilities, or the log-sum-exps.
void forward(Kind kind, const Backend& k, const Ctx& ctx, const AttentionShape& s, CBuf q, Out saved, Out y) {
  const int64_t C = s.H * s.D;
  if (kind == Kind::Plain)
    k.attention_plain_fwd(ctx, s, q, part(q, C), part(q, 2 * C), saved, y);
  else
    k.attention_flash_fwd(ctx, s, q, part(q, C), part(q, 2 * C), y, saved);
}
void backward(Kind kind, const Backend& k, const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf saved,
              CBuf y, CBuf dy, Out dq) {
  const int64_t C = s.H * s.D;
  const CBuf key = part(q, C), value = part(q, 2 * C);
  const Out dk = part(dq, C), dv = part(dq, 2 * C);
  if (kind == Kind::Plain)
    k.attention_plain_bwd(ctx, s, q, key, value, saved, dy, dq, dk, dv);
  else
    k.attention_flash_bwd(ctx, s, q, key, value, y, saved, dy, dq, dk, dv);
}
TestCtx context_of(Kind kind, const AttentionShape& s, DType t) {
  TestCtx ctx(kind == Kind::Plain ? cost::attention_plain_bwd(s, t) : cost::attention_flash_bwd(s, t));
  ctx.scalars().step = 4;
  return ctx;
}

struct Attended {  // forward and backward of one dtype
  std::vector<double> saved, y, dqkv;
  Attended(Kind kind, DType t, const AttentionShape& s, const std::vector<double>& qkv,
           const std::vector<double>& dy) {
    const Buffer x(t, qkv), g(t, dy);
    Buffer save = Buffer::zeros(saved_type(kind, t), saved_size(kind, s)),
           out = Buffer::zeros(t, s.B * s.T * s.H * s.D), dx = Buffer::zeros(t, int64_t(qkv.size()));
    TestCtx ctx = context_of(kind, s, t);
    const Backend& k = t == DType::F64 ? cpu_backend() : table();  // the reference
    forward(kind, k, ctx, s, x.in(), save.out(Write::Set), out.out(Write::Set));
    backward(kind, k, ctx, s, x.in(), save.in(), out.in(), g.in(), dx.out(Write::Set));
    saved = save.values(), y = out.values(), dqkv = dx.values();
  }
};

std::vector<double> rounded(DType t, int64_t n, uint64_t stream) {
  return Buffer::random(t, n, stream).values();
}

// The formula, one weight at a time: y, and what each kind saves.
struct Formula {
  std::vector<double> y, probs, lse;
  Formula(const AttentionShape& s, const std::vector<double>& x)
      : y(s.B * s.T * s.H * s.D), probs(s.B * s.H * s.T * s.T), lse(s.B * s.H * s.T) {
    const int64_t C = s.H * s.D;
    for (int64_t i = 0; i < s.B * s.H * s.T; ++i) {
      const int64_t b = i / s.T / s.H, h = i / s.T % s.H, t = i % s.T;
      const int64_t keys = s.mask == Mask::Causal ? t + 1 : s.T;
      const auto at = [&](int64_t time, int64_t third) {
        return &x[(b * s.T + time) * 3 * C + third * C + h * s.D];
      };
      double* const w = &probs[i * s.T];
      double sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < s.D; ++d) dot += at(t, 0)[d] * at(j, 1)[d];
        sum += w[j] = std::exp(dot * double(s.scale));
      }
      lse[i] = std::log(sum);
      for (int64_t j = 0; j < keys; ++j) {
        w[j] /= sum;
        const int64_t e = (h * s.T + t) * s.T + j;
        const bool keep = s.dropout == 0 || uniform01(dropout_words(9, 4, 2, b, e / 4)[e % 4]) >= s.dropout;
        const double weight = keep ? w[j] / (1 - double(s.dropout)) : 0;
        for (int64_t d = 0; d < s.D; ++d) y[(b * s.T + t) * C + h * s.D + d] += weight * at(j, 2)[d];
      }
    }
  }
};

// Heads of 64, 65 and 128 dimensions, because flash's tiles are 64 or 128 wide on a GPU.
TEST_P(L03_Attention, IsTheFormulaAndEveryDtypeFollowsFp64) {
  for (const AttentionShape& s :
       {shape_of(2, 3, 7, 5, Mask::Causal), shape_of(1, 2, 130, 16, Mask::Causal),
        shape_of(2, 1, 67, 3, Mask::None), shape_of(1, 1, 1, 1, Mask::Causal),
        shape_of(2, 2, 33, 8, Mask::Causal, 0.25f), shape_of(1, 1, 150, 4, Mask::None, 0.25f),
        shape_of(1, 2, 65, 64, Mask::Causal), shape_of(1, 1, 33, 65, Mask::Causal, 0.25f),
        shape_of(1, 1, 40, 128, Mask::None)})
    for (const DType t : float_types()) {
      const int64_t C = s.H * s.D;
      const std::vector<double> x = rounded(t, s.B * s.T * 3 * C, 1), dy = rounded(t, s.B * s.T * C, 2);
      const Formula formula(s, x);
      const Attended exact(Kind::Plain, DType::F64, s, x, dy);
      for (const Kind kind : kBoth) {
        const Attended fp64(kind, DType::F64, s, x, dy), got(kind, t, s, x, dy);
        const std::string op = name_of(kind) + " " + gradus::name_of(t);
        const auto within = [](double bound) { return [=](int64_t) { return bound; }; };
        const double tight = 1e-13 * double(s.T + s.D);
        expect_close(name_of(kind) + " fp64 y", fp64.y, formula.y, within(tight));
        expect_close(name_of(kind) + " fp64 saved", fp64.saved,
                     kind == Kind::Plain ? formula.probs : formula.lse, within(tight));
        expect_close(name_of(kind) + " fp64 dqkv", fp64.dqkv, exact.dqkv, within(100 * tight));
        // Probabilities are rounded to T before they are used in backward (flash rounds y, which does the
        // same to rowsum(P dP)), scores are sums of D products in fp32: a few roundings of numbers of size 1,
        // magnified by scores of size up to about 5 and sums over T keys with weights <= 1.
        const DType sums = t == DType::F64 ? t : DType::F32;
        const double eps = 16 * epsilon_of(t) + 64 * double(s.D) * epsilon_of(sums);
        expect_close(op + " saved", got.saved, fp64.saved, within(eps));
        expect_close(op + " y", got.y, exact.y, within(4 * eps));
        expect_close(op + " dqkv", got.dqkv, exact.dqkv, within(32 * eps));
      }
    }
}

TEST_P(L03_Attention, LargeScoresDoNotOverflow) {  // e^1000 would; the largest score is subtracted before
  const AttentionShape s = shape_of(1, 1, 7, 4, Mask::Causal);
  std::vector<double> x = rounded(DType::F32, 7 * 12, 1);
  for (double& v : x) v *= 64;
  for (const Kind kind : kBoth)
    for (const double y : Attended(kind, DType::F32, s, x, x).y)
      ASSERT_TRUE(std::isfinite(y)) << name_of(kind);
}

TEST_P(L03_Attention, AQueryDoesNotSeeWhatFollowsIt) {
  RecordProperty("exercise", "03.4");
  const AttentionShape s = shape_of(1, 2, 70, 4, Mask::Causal);
  const std::vector<double> x = rounded(DType::F32, 70 * 24, 1), dy = rounded(DType::F32, 70 * 8, 2);
  for (const Kind kind : kBoth) {
    const Attended before(kind, DType::F32, s, x, dy);
    for (const int64_t t : {0, 1, 63, 64, 69}) {
      std::vector<double> changed = x;
      for (int64_t i = (t + 1) * 24; i < 70 * 24; ++i) changed[i] += 1;  // everything after t
      const Attended after(kind, DType::F32, s, changed, dy);
      for (int64_t i = 0; i < (t + 1) * 8; ++i)
        ASSERT_EQ(after.y[i], before.y[i])
            << name_of(kind) << ": the output at time " << i / 8 << " depends on a later one; keys 0..t only";
      for (int64_t j = t + 1; j < 70 && kind == Kind::Plain; ++j)
        ASSERT_EQ(before.saved[t * 70 + j], 0) << "query " << t << ", key " << j;
    }
  }
}

TEST_P(L03_Attention, AddIsTheOldValuePlusTheFinishedGradient) {
  for (const int64_t T : {70, 140}) {
    const AttentionShape s = shape_of(2, 2, T, 4, Mask::Causal);
    const Buffer x = Buffer::random(DType::F32, 2 * T * 24, 1), dy = Buffer::random(DType::F32, 2 * T * 8, 2);
    for (const Kind kind : kBoth) {
      const int64_t n = saved_size(kind, s);
      Buffer saved = Buffer::zeros(DType::F32, n), y = Buffer::zeros(DType::F32, 2 * T * 8);
      TestCtx ctx = context_of(kind, s, DType::F32);
      const auto fwd = [&](Out saved, Out y) { forward(kind, table(), ctx, s, x.in(), saved, y); };
      fwd(saved.out(Write::Set), y.out(Write::Set));
      const std::string op = name_of(kind);
      expect_add_is_set_plus(op + " y", DType::F32, 2 * T * 8, [&](Out o) { fwd(saved.out(Write::Set), o); });
      expect_add_is_set_plus(op + " dqkv", DType::F32, 2 * T * 24, [&](Out o) {
        backward(kind, table(), ctx, s, x.in(), saved.in(), y.in(), dy.in(), o);
      });
      if (kind == Kind::Flash)
        expect_add_is_set_plus(op + " lse", DType::F32, n, [&](Out o) { fwd(o, y.out(Write::Set)); });
    }
  }
}

// Each gradient is the same whether the others are wanted or not, and nothing else is written.
TEST_P(L03_Attention, GradientsThatAreNotWantedAreSkipped) {
  const AttentionShape s = shape_of(1, 2, 40, 4, Mask::Causal, 0.25f);
  const int64_t n = 40 * 24;
  const Buffer x = Buffer::random(DType::F32, n, 1), dy = Buffer::random(DType::F32, 40 * 8, 2);
  const std::vector<double> old = rounded(DType::F32, n, 3);
  for (const Kind kind : kBoth) {
    const Attended all(kind, DType::F32, s, x.values(), dy.values());
    const Buffer saved(DType::F32, all.saved), y(DType::F32, all.y);
    for (int wanted = 0; wanted < 8; ++wanted) {
      Buffer dx(DType::F32, old);
      const Out dq = dx.out(Write::Set);
      const auto out = [&](int i) { return wanted >> i & 1 ? part(dq, i * 8) : Out{nullptr, DType::F32}; };
      TestCtx ctx = context_of(kind, s, DType::F32);
      const CBuf q = x.in(), k = part(q, 8), v = part(q, 16);
      if (kind == Kind::Plain)
        table().attention_plain_bwd(ctx, s, q, k, v, saved.in(), dy.in(), out(0), out(1), out(2));
      else
        table().attention_flash_bwd(ctx, s, q, k, v, y.in(), saved.in(), dy.in(), out(0), out(1), out(2));
      const std::vector<double> got = dx.values();
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(got[i], wanted >> (i % 24 / 8) & 1 ? all.dqkv[i] : old[i])
            << name_of(kind) << ", gradients wanted: " << wanted << ", element " << i;
    }
  }
}

TEST_P(L03_Attention, WhatCannotBeDoneIsRefusedWithAHint) {
  if (&table() == &cpu_backend()) GTEST_SKIP() << "the cpu has no such limits";
  const auto attend = [](Kind kind, const AttentionShape& s) {
    Buffer any = Buffer::zeros(DType::F32, 1);  // nothing gets as far as to read it
    TestCtx ctx = context_of(kind, s, DType::F32);
    forward(kind, table(), ctx, s, any.in(), any.out(Write::Set), any.out(Write::Set));
  };
  expect_refused("heads of 129", [&] { attend(Kind::Flash, shape_of(1, 1, 2, 129, Mask::None)); });
  expect_refused("attention_flash", [&] { attend(Kind::Plain, shape_of(1, 1, 9000, 2, Mask::None)); });
}

TEST(L03_AttentionOnCpu, TheResultDoesNotDependOnTheNumberOfThreads) {
  const AttentionShape s = shape_of(3, 2, 70, 4, Mask::Causal);
  const std::vector<double> x = rounded(DType::F32, 3 * 70 * 24, 1), dy = rounded(DType::F32, 3 * 70 * 8, 2);
  const int threads = omp_get_max_threads();
  for (const Kind kind : kBoth) {
    const Attended expected(kind, DType::F32, s, x, dy);
    for (const int n : {1, 2, 3}) {
      omp_set_num_threads(n);
      const Attended got(kind, DType::F32, s, x, dy);
      EXPECT_EQ(got.y, expected.y) << name_of(kind) << " with " << n << " threads";
      EXPECT_EQ(got.dqkv, expected.dqkv) << name_of(kind) << " with " << n << " threads";
    }
    omp_set_num_threads(threads);
  }
}

}  // namespace
}  // namespace gradus
