// The balance loss of a mixture of experts against its formula in fp64, and in cases with known values.
#include "tests/kernels/experts_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L21_BalanceLoss);

constexpr float kAlpha = 0.37f;

// f and P by the formula, for each sequence.
struct Balanced {
  ExpertShape s;
  DType T;
  Ids experts;
  Buffer logits;
  double count;  // 0: none is given
  Buffer counts = Buffer(stat(T), {count}), dloss = Buffer(stat(T), {-1.7});
  std::vector<double> f = std::vector<double>(s.B * s.E), p = std::vector<double>(s.tokens() * s.E),
                      off = p;  // allowed error of p in roundings; p may be 0 below e^-86.9

  Balanced(const ExpertShape& s, const Buffer& logits, double count)
      : s(s), T(logits.type()), experts(some_experts(s, 1)), logits(logits), count(count) {
    for (int64_t i = 0; i < s.choices(); ++i) f[i / s.chosen / s.T * s.E + experts[i]] += 1;
    for (double& share : f) share /= double(s.T * s.chosen);
    const std::vector<double> x = logits.values();
    for (int64_t t = 0; t < s.tokens(); ++t) {
      const double* row = x.data() + t * s.E;
      const double max = *std::max_element(row, row + s.E);
      double sum = 0;
      for (int64_t e = 0; e < s.E; ++e) sum += std::exp(row[e] - max);
      for (int64_t e = 0; e < s.E; ++e) {
        p[t * s.E + e] = std::exp(row[e] - max) / sum;
        off[t * s.E + e] = p[t * s.E + e] * (double(s.E) + 10 + max - row[e]) + 0x1p-98;
      }
    }
  }
  CBuf given() const { return count > 0 ? counts.in() : CBuf{nullptr, stat(T)}; }
  double factor() const { return double(kAlpha) * double(s.E) / (count > 0 ? count : double(s.tokens())); }

  void expect_forward() const {
    Expected loss{"loss", {stat(T)}, {0}, {0}};
    const double sum_over_tokens = T == DType::F64 ? double(s.tokens()) : 1;  // fp32 is summed in fp64
    long double sum = 0;
    for (int64_t i = 0; i < s.tokens() * s.E; ++i) {
      const double share = f[i / s.E / s.T * s.E + i % s.E];
      sum += static_cast<long double>(share) * p[i];
      loss.error[0] += factor() * share * (off[i] + (double(s.E + 8) + sum_over_tokens) * p[i]);
    }
    if (s.tokens() > 0) loss.value[0] = factor() * double(sum);
    const TestedCall call{"balance_loss_fwd of " + text(s),
                          {loss},
                          [this](const Ctx& ctx, const std::vector<Out>& out) {
                            table().balance_loss_fwd(ctx, s, logits.in(), in(experts), given(), out[0],
                                                     kAlpha);
                          },
                          cost::balance_loss_fwd(s, T)};
    ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
  }
  void expect_backward() const {
    Expected dlogits{"dlogits", {T}, {}, {}};
    const double by = factor() * dloss.values()[0];
    for (int64_t t = 0; t < s.tokens(); ++t) {
      const double *pt = p.data() + t * s.E, *ft = f.data() + t / s.T * s.E, *of = off.data() + t * s.E;
      double dot = 0, dot_off = 0;
      for (int64_t e = 0; e < s.E; ++e)
        dot += ft[e] * pt[e], dot_off += ft[e] * (of[e] + double(s.E + 8) * pt[e]);
      for (int64_t e = 0; e < s.E; ++e) {
        dlogits.value.push_back(by * pt[e] * (ft[e] - dot));
        dlogits.error.push_back(std::abs(by) *
                                ((of[e] + 8 * pt[e]) * std::abs(ft[e] - dot) + pt[e] * (ft[e] + dot_off)));
      }
    }
    const TestedCall call{"balance_loss_bwd of " + text(s),
                          {dlogits},
                          [this](const Ctx& ctx, const std::vector<Out>& out) {
                            table().balance_loss_bwd(ctx, s, logits.in(), in(experts), given(), dloss.in(),
                                                     out[0], kAlpha);
                          },
                          cost::balance_loss_bwd(s, T)};
    ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
  }
};

// With a count; in fp32 also without a count.
std::vector<Balanced> some() {
  std::vector<Balanced> some;
  for (const DType T : float_types())
    for (const ExpertShape& s : expert_shapes())
      for (const double count : {0.0, 12.5})
        if (T == DType::F32 || count > 0)
          some.emplace_back(s, Buffer::random(T, s.tokens() * s.E, 2, 4), count);
  return some;
}
TEST_P(L21_BalanceLoss, Forward) {
  for (const Balanced& b : some()) ASSERT_NO_FATAL_FAILURE(b.expect_forward());
}
TEST_P(L21_BalanceLoss, Backward) {
  for (const Balanced& b : some()) ASSERT_NO_FATAL_FAILURE(b.expect_backward());
}

double loss_of(const ExpertShape& s, const std::vector<double>& logits, const Ids& experts, float alpha,
               double count = 0) {
  const Buffer x(DType::F32, logits), counts(DType::F32, {count});
  Buffer loss(DType::F32, {NAN});
  TestCtx ctx(cost::balance_loss_fwd(s, DType::F32));
  ctx.poison_scratch();
  table().balance_loss_fwd(ctx, s, x.in(), in(experts), count > 0 ? counts.in() : CBuf{nullptr, DType::F32},
                           loss.out(Write::Set), alpha);
  return loss.values()[0];
}

// Powers of two, so nothing is rounded.
TEST_P(L21_BalanceLoss, IsAlphaIfUniformAndAlphaEByChosenIfCollapsed) {
  for (const int64_t E : {1, 2, 8, 64})
    for (const int64_t chosen : {1, 2, 8}) {
      if (chosen > E) continue;
      const ExpertShape s{3, 64, E, chosen, 1};  // places do not matter: dropped choices count as well
      Ids uniform(s.choices()), collapsed(s.choices());
      std::vector<double> logits(s.tokens() * E);
      for (int64_t i = 0; i < s.choices(); ++i)
        uniform[i] = int32_t(i % E), collapsed[i] = int32_t(E - 1 - i % chosen);
      EXPECT_EQ(loss_of(s, logits, uniform, 0.25f), 0.25) << text(s);
      EXPECT_EQ(loss_of(s, logits, collapsed, 0.25f), 0.25) << "P is uniform, so f does not matter";
      for (int64_t i = 0; i < s.tokens() * E; ++i) logits[i] = i % E < E - chosen ? -200 : 0;
      EXPECT_EQ(loss_of(s, logits, uniform, 0.25f), 0.25) << "f is uniform, so P does not matter";
      EXPECT_EQ(loss_of(s, logits, collapsed, 0.25f), 0.25 * double(E) / double(chosen)) << text(s);
    }
}

// Each micro-batch or rank has some of the sequences.
TEST_P(L21_BalanceLoss, PartsWithTheWholesCountAddUp) {
  const ExpertShape s{5, 9, 4, 2, 3};
  const std::vector<double> logits = Buffer::random(DType::F32, s.tokens() * s.E, 1).values();
  const Ids experts = some_experts(s, 1);
  double sum = 0;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>(0, 1), {1, 3}, {4, 1}}) {
    ExpertShape part = s;
    part.B = count;
    const int64_t x = first * s.T * s.E, e = first * s.T * s.chosen;
    sum += loss_of(part, {logits.begin() + x, logits.begin() + x + part.tokens() * s.E},
                   Ids(experts.begin() + e, experts.begin() + e + part.choices()), 1, double(s.tokens()));
  }
  EXPECT_NEAR(sum, loss_of(s, logits, experts, 1), 8 * 0x1p-24 * sum);
}

TEST_P(L21_BalanceLoss, WithoutTokensIsZero) {
  for (const ExpertShape& s : {ExpertShape{0, 5, 3, 1, 2}, {2, 0, 3, 1, 0}}) {
    EXPECT_EQ(loss_of(s, {}, {}, 1), 0);
    EXPECT_EQ(loss_of(s, {}, {}, 1, 10), 0);
  }
}

TEST_P(L21_BalanceLoss, OfNaNIsNaN) {
  for (const double bad : {double(NAN), double(INFINITY)})
    EXPECT_TRUE(std::isnan(loss_of({1, 2, 3, 1, 1}, {0, bad, 1, 0, 1, 2}, {1, 2}, 1)));
  const double inf = INFINITY;
  EXPECT_TRUE(std::isnan(loss_of({1, 1, 2, 1, 1}, {-inf, -inf}, {0}, 1)));
  EXPECT_EQ(loss_of({1, 1, 2, 1, 1}, {-inf, 0}, {1}, 1), 2) << "an expert that is never chosen";
}

}  // namespace
}  // namespace gradus
