// The attention kernel: the plain formula in fp64 as reference for every dtype, causality, dropout, packed
// layouts.
#include <omp.h>

#include "kernels/philox.h"
#include "tests/kernel_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L03_Attention);

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

struct Attended {  // forward and backward of one dtype, on qkv (B, T, 3C)
  std::vector<double> probs, y, dqkv;
  Attended(DType t, const AttentionShape& s, const std::vector<double>& qkv, const std::vector<double>& dy) {
    const int64_t C = s.H * s.D;
    const Buffer x(t, qkv), g(t, dy);
    Buffer p = Buffer::zeros(t, s.B * s.H * s.T * s.T), out = Buffer::zeros(t, s.B * s.T * C),
           dx = Buffer::zeros(t, int64_t(qkv.size()));
    TestCtx ctx(cost::attention_plain_bwd(s, t));
    ctx.scalars().step = 4;
    const Backend& k = t == DType::F64 ? cpu_backend() : table();  // the reference
    k.attention_plain_fwd(ctx, s, x.in(), part(x.in(), C), part(x.in(), 2 * C), p.out(Write::Set),
                          out.out(Write::Set));
    const Out o = dx.out(Write::Set);
    k.attention_plain_bwd(ctx, s, x.in(), part(x.in(), C), part(x.in(), 2 * C), p.in(), g.in(), o, part(o, C),
                          part(o, 2 * C));
    probs = p.values(), y = out.values(), dqkv = dx.values();
  }
};

std::vector<double> rounded(DType t, int64_t n, uint64_t stream) {
  return Buffer::random(t, n, stream).values();
}

// The formula, one weight at a time.
std::vector<double> plain_output(const AttentionShape& s, const std::vector<double>& x) {
  const int64_t C = s.H * s.D;
  std::vector<double> y(s.B * s.T * C), w(s.T);
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t h = 0; h < s.H; ++h)
      for (int64_t t = 0; t < s.T; ++t) {
        const int64_t keys = s.mask == Mask::Causal ? t + 1 : s.T;
        const auto at = [&](int64_t time, int64_t third) {
          return &x[(b * s.T + time) * 3 * C + third * C + h * s.D];
        };
        double sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < s.D; ++d) dot += at(t, 0)[d] * at(j, 1)[d];
          sum += w[j] = std::exp(dot * double(s.scale));
        }
        for (int64_t j = 0; j < keys; ++j) {
          const int64_t e = (h * s.T + t) * s.T + j;
          const bool keep = s.dropout == 0 || uniform01(dropout_words(9, 4, 2, b, e / 4)[e % 4]) >= s.dropout;
          const double weight = keep ? w[j] / sum / (1 - double(s.dropout)) : 0;
          for (int64_t d = 0; d < s.D; ++d) y[(b * s.T + t) * C + h * s.D + d] += weight * at(j, 2)[d];
        }
      }
  return y;
}

TEST_P(L03_Attention, IsTheFormulaAndEveryDtypeFollowsFp64) {
  for (const AttentionShape& s : {shape_of(2, 3, 7, 5, Mask::Causal), shape_of(1, 2, 130, 16, Mask::Causal),
                                  shape_of(2, 1, 67, 3, Mask::None), shape_of(1, 1, 1, 1, Mask::Causal),
                                  shape_of(2, 2, 33, 8, Mask::Causal, 0.25f)})
    for (const DType t : float_types()) {
      const int64_t C = s.H * s.D;
      const std::vector<double> x = rounded(t, s.B * s.T * 3 * C, 1), dy = rounded(t, s.B * s.T * C, 2);
      const Attended exact(DType::F64, s, x, dy), got(t, s, x, dy);
      const std::vector<double> expected = plain_output(s, x);
      expect_close("attention fp64", exact.y, expected, [&](int64_t) { return 1e-13 * double(s.T + s.D); });
      // Probabilities are rounded to T before they are used in backward, scores are sums of D products in
      // fp32: a few roundings of numbers of size 1, magnified by scores of size up to about 5 and sums over T
      // keys with weights <= 1.
      const double eps = 16 * epsilon_of(t) + 64 * double(s.D) * epsilon_of(t == DType::F64 ? t : DType::F32);
      expect_close(std::string("attention probs ") + name_of(t), got.probs, exact.probs,
                   [&](int64_t) { return eps; });
      expect_close(std::string("attention y ") + name_of(t), got.y, exact.y,
                   [&](int64_t) { return 4 * eps; });
      expect_close(std::string("attention dqkv ") + name_of(t), got.dqkv, exact.dqkv,
                   [&](int64_t) { return 32 * eps; });
    }
}

TEST_P(L03_Attention, AQueryDoesNotSeeWhatFollowsIt) {
  RecordProperty("exercise", "03.4");
  const AttentionShape s = shape_of(1, 2, 70, 4, Mask::Causal);
  std::vector<double> x = rounded(DType::F32, 70 * 24, 1);
  const std::vector<double> dy = rounded(DType::F32, 70 * 8, 2);
  const Attended before(DType::F32, s, x, dy);
  for (const int64_t t : {0, 1, 63, 64, 69}) {
    std::vector<double> changed = x;
    for (int64_t i = (t + 1) * 24; i < 70 * 24; ++i) changed[i] += 1;  // everything after t
    const Attended after(DType::F32, s, changed, dy);
    for (int64_t i = 0; i < (t + 1) * 8; ++i)
      ASSERT_EQ(after.y[i], before.y[i])
          << "attention: the output at time " << i / 8 << " depends on a later one; keys 0..t only";
    for (int64_t j = t + 1; j < 70; ++j)
      ASSERT_EQ(before.probs[t * 70 + j], 0) << "query " << t << ", key " << j;
  }
}

TEST_P(L03_Attention, AddIsTheOldValuePlusTheFinishedGradient) {
  const AttentionShape s = shape_of(2, 2, 70, 4, Mask::Causal);
  const Buffer x = Buffer::random(DType::F32, 2 * 70 * 24, 1), dy = Buffer::random(DType::F32, 2 * 70 * 8, 2);
  Buffer p = Buffer::zeros(DType::F32, 4 * 70 * 70), y = Buffer::zeros(DType::F32, 2 * 70 * 8);
  TestCtx ctx(cost::attention_plain_bwd(s, DType::F32));
  const CBuf q = x.in(), k = part(q, 8), v = part(q, 16);
  table().attention_plain_fwd(ctx, s, q, k, v, p.out(Write::Set), y.out(Write::Set));
  expect_add_is_set_plus("attention y", DType::F32, 2 * 70 * 8,
                         [&](Out o) { table().attention_plain_fwd(ctx, s, q, k, v, p.out(Write::Set), o); });
  expect_add_is_set_plus("attention dqkv", DType::F32, 2 * 70 * 24, [&](Out o) {
    table().attention_plain_bwd(ctx, s, q, k, v, p.in(), dy.in(), o, part(o, 8), part(o, 16));
  });
}

TEST(L03_AttentionOnCpu, TheResultDoesNotDependOnTheNumberOfThreads) {
  const AttentionShape s = shape_of(3, 2, 70, 4, Mask::Causal);
  const std::vector<double> x = rounded(DType::F32, 3 * 70 * 24, 1), dy = rounded(DType::F32, 3 * 70 * 8, 2);
  const int threads = omp_get_max_threads();
  const Attended expected(DType::F32, s, x, dy);
  for (const int n : {1, 2, 3}) {
    omp_set_num_threads(n);
    const Attended got(DType::F32, s, x, dy);
    EXPECT_EQ(got.y, expected.y) << n << " threads";
    EXPECT_EQ(got.dqkv, expected.dqkv) << n << " threads";
  }
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace gradus
