// attention_merge_inplace against its formula in fp64; and merged attention to blocks of keys against
// attention to all keys.
#include "tests/kernels/attention_formula.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L19_AttentionMerge);

// Three layouts of the sum: dense, one array per head, time outermost with gaps.
AttentionShape shape_of(int64_t B, int64_t H, int64_t T, int64_t D, int layout) {
  const int64_t C = H * D, line = D + 3, batch = H * line + 1;
  const HeadLayout y[] = {{T * C, D, C}, {H * (T * D + 2) + 3, T * D + 2, D}, {batch, line, B * batch + 4}};
  return {.B = B, .H = H, .KV = 1, .T = T, .D = D, .qkv = {}, .y = y[layout], .scale = 1};
}

// The inputs of one call, and its expected outputs; `rare` changes the log-sum-exps of query i.
struct Merge {
  using Rare = std::function<void(int64_t i, double& before, double& here)>;
  AttentionShape s;
  DType T;
  std::vector<double> old_sum, old_total;
  Buffer y, lse, sum, total;
  Expected expected_sum, expected_total;

  Merge(const AttentionShape& s, DType T, const Rare& rare = nullptr)
      : s(s),
        T(T),
        y(Buffer::random(T, s.B * s.T * s.H * s.D, 1)),
        lse(Buffer::random(stat(T), s.B * s.H * s.T, 2, 4)),
        sum(Buffer::random(stat(T), extent(s, s.H, s.y), 3)),
        total(Buffer::random(stat(T), s.B * s.H * s.T, 4, 4)),
        expected_sum(Expected::sums("sum", {stat(T)}, extent(s, s.H, s.y))),
        expected_total(Expected::sums("total", {stat(T)}, s.B * s.H * s.T)) {
    std::vector<double> before = total.values(), here = lse.values();
    for (size_t i = 0; rare && i < before.size(); ++i) rare(int64_t(i), before[i], here[i]);
    total = Buffer(stat(T), before), lse = Buffer(stat(T), here);
    old_sum = sum.values(), old_total = total.values();
    const std::vector<double> vy = y.values(), v = lse.values();
    for (int64_t i = 0; i < s.B * s.H * s.T; ++i) formula(i, old_total[i], v[i], vy);
  }
  void formula(int64_t i, double before, double here, const std::vector<double>& vy) {
    const int64_t b = i / s.T / s.H, h = i / s.T % s.H, t = i % s.T;
    const double most = std::max(before, here),
                 both = most + std::log1p(std::exp(std::min(before, here) - most)),
                 keep = std::exp(before - both), take = std::exp(here - both);
    const auto size = [](double x) { return std::isinf(x) ? 0 : std::abs(x); };
    // The log of a number from 1 to 2 has an error of some roundings; adding it to `most` rounds once more.
    expected_total.add(i, both, 6 + size(both));
    for (int64_t d = 0; d < s.D; ++d) {
      const int64_t to = AttentionFormula::at(s.y, b, h, t) + d;
      const double kept = keep * old_sum[to], taken = take * vy[((b * s.T + t) * s.H + h) * s.D + d];
      const double weight_error = 16 + 4 * (size(before) + size(here) + size(both));
      expected_sum.add(to, kept + taken, weight_error * (std::abs(kept) + std::abs(taken)) + 0x1p-96);
    }
  }
  void run() {
    TestCtx ctx(cost::attention_merge_inplace(s, T));
    ctx.poison_scratch();
    table().attention_merge_inplace(ctx, s, y.in(), lse.in(), sum.out(Write::Set), total.out(Write::Set));
    EXPECT_TRUE(ctx.kept_to_its_scratch());
  }
  // On cpu with one thread and with three: the results must be bitwise equal.
  void expect() {
    const char* const op = "attention_merge_inplace";
    std::vector<double> first[2];
    for (const int threads : {1, 3}) {
      const OpenMpThreads as_many(threads);
      sum = Buffer(stat(T), old_sum), total = Buffer(stat(T), old_total);
      run();
      const std::vector<double> got[] = {sum.values(), total.values()};
      ASSERT_NO_FATAL_FAILURE(expect_written(op, expected_sum, stat(T), Write::Set, old_sum, got[0]));
      ASSERT_NO_FATAL_FAILURE(expect_written(op, expected_total, stat(T), Write::Set, old_total, got[1]));
      for (const int i : {0, 1}) {
        if (threads == 3) {
          ASSERT_EQ(got[i], first[i]) << "on cpu, three threads differ from one";
        }
        first[i] = got[i];
      }
      if (turn.table != &cpu_backend()) return;
    }
  }
};

// A block of a GPU has 8 queries, a warp reads 32 dimensions at a time; the cpu gives a thread thousands of
// elements.
TEST_P(L19_AttentionMerge, SizesOnBothSidesOfEveryBlock) {
  constexpr struct {
    int64_t B, H, T;
  } kQueries[] = {{1, 1, 1}, {1, 1, 7}, {2, 2, 2}, {3, 1, 3}, {1, 3, 11}, {2, 4, 33}};
  for (const DType T : float_types())
    for (const auto [B, H, queries] : kQueries)
      for (const int64_t D : {1, 31, 32, 33, 65})
        for (const int layout : {0, 1, 2})
          ASSERT_NO_FATAL_FAILURE(Merge(shape_of(B, H, queries, D, layout), T).expect());
}
TEST_P(L19_AttentionMerge, OfManyQueries) {
  if (turn.table != &cpu_backend()) GTEST_SKIP() << "the smaller sizes suffice for blocks of 8 queries";
  for (const DType T : float_types()) Merge(shape_of(2, 3, 1000, 33, 2), T).expect();
}
TEST_P(L19_AttentionMerge, NothingIsNoError) {
  for (const AttentionShape& s : {shape_of(0, 2, 3, 4, 0), shape_of(2, 1, 0, 4, 1)})
    Merge(s, DType::F32).expect();
}

// e^1000 overflows. One of the two weights is 0, or both are 1/2.
TEST_P(L19_AttentionMerge, LargeLogSumExpsDoNotOverflow) {
  for (const DType T : float_types())
    Merge(shape_of(2, 2, 5, 33, 2), T, [](int64_t i, double& before, double& here) {
      constexpr double kBefore[] = {1000, -1000, 1000, -1000, 0}, kHere[] = {1000, -1000, -1000, 1000, 200};
      before = kBefore[i % 5], here = kHere[i % 5];
    }).expect();
}

TEST_P(L19_AttentionMerge, TheFirstGivesYAndItsLogSumExpToTheBit) {
  for (const DType T : float_types())
    for (const int layout : {0, 2}) {
      Merge m(shape_of(2, 3, 5, 33, layout), T, [](int64_t i, double& before, double& here) {
        before = -INFINITY;
        if (i < 2) here = i == 0 ? 1e30 : -1e30;
      });
      m.sum = Buffer::zeros(stat(T), int64_t(m.old_sum.size()));
      m.run();
      const std::vector<double> sum = m.sum.values(), y = m.y.values();
      EXPECT_EQ(m.total.values(), m.lse.values());
      const AttentionShape& s = m.s;
      for (int64_t i = 0; i < s.B * s.T * s.H * s.D; ++i) {
        const int64_t d = i % s.D, h = i / s.D % s.H, t = i / s.D / s.H % s.T, b = i / s.D / s.H / s.T;
        ASSERT_EQ(sum[AttentionFormula::at(s.y, b, h, t) + d], y[i]) << "element " << i;
      }
    }
}

// If lse is -infinity, all scores of these keys are -infinity, so the keys add nothing.
TEST_P(L19_AttentionMerge, KeysOfNoWeightChangeNothing) {
  for (const DType T : float_types()) {
    Merge m(shape_of(2, 3, 5, 33, 2), T, [](int64_t, double&, double& here) { here = -INFINITY; });
    m.run();
    EXPECT_EQ(m.total.values(), m.old_total);
    EXPECT_EQ(m.sum.values(), m.old_sum);
    Merge none(shape_of(2, 3, 5, 33, 2), T,
               [](int64_t, double& before, double& here) { before = here = -INFINITY; });
    none.run();
    EXPECT_EQ(none.total.values(), none.old_total) << "a query without any key so far";
    EXPECT_EQ(none.sum.values(), none.old_sum);
  }
}

TEST_P(L19_AttentionMerge, WhatCannotBeMergedIsRefused) {
  const Buffer x = Buffer::zeros(DType::F32, 1);
  Buffer to = x;
  TestCtx ctx;
  const auto merge = [&](const AttentionShape& s, Write sum, Write total) {
    table().attention_merge_inplace(ctx, s, x.in(), x.in(), to.out(sum), to.out(total));
  };
  AttentionShape s = shape_of(0, 4, 2, 2, 0);
  for (const auto& [sum, total] : {std::pair(Write::Add, Write::Set), {Write::Set, Write::Add}})
    expect_refused("attention_merge_inplace: sums are replaced; Write::Add has no meaning here",
                   [&, sum = sum, total = total] { merge(s, sum, total); });
  s.KV = 3;
  expect_refused("attention_merge_inplace: 4 heads of queries cannot share 3",
                 [&] { merge(s, Write::Set, Write::Set); });
}

// Attention of the last block of tokens to each block of keys, merged, and attention of all tokens.
struct Blocks {
  DType T;
  AttentionShape whole;
  int64_t blocks;
  Buffer qkv = Buffer::random(T, whole.B* whole.qkv.batch, 1);
  int64_t C = whole.H * whole.D, size = whole.T / blocks;

  // Attention of the queries from `query` on to the keys from `key` on: (y, lse).
  std::pair<Buffer, Buffer> attend(const AttentionShape& s, int64_t query, int64_t key, TestCtx& ctx) const {
    Buffer y = Buffer::zeros(T, s.B * s.T * C), lse = Buffer::zeros(stat(T), s.B * s.H * s.T);
    const CBuf k = qkv.in().from(key * s.qkv.time + C);
    table().attention_flash_fwd(ctx, s, qkv.in().from(query * s.qkv.time), k, k.from(s.KV * s.D),
                                y.out(Write::Set), lse.out(Write::Set));
    return {y, lse};
  }
  // Merges attention of the last block's queries to the blocks of keys, in this order. Returns (y, lse); y is
  // in the layout {B,T,H,D}.
  std::pair<std::vector<double>, std::vector<double>> merged(const std::vector<int64_t>& order,
                                                             TestCtx& ctx) const {
    AttentionShape s = whole;
    s.T = size, s.y = {size * C, s.D, C};
    Buffer sum = Buffer::zeros(stat(T), s.B * s.T * C),
           total(stat(T), std::vector<double>(s.B * s.H * s.T, -INFINITY));
    for (const int64_t block : order) {
      s.mask = block == blocks - 1 ? whole.mask : Mask::None;
      const auto [y, lse] = attend(s, (blocks - 1) * size, block * size, ctx);
      table().attention_merge_inplace(ctx, s, y.in(), lse.in(), sum.out(Write::Set), total.out(Write::Set));
    }
    return {sum.values(), total.values()};
  }
  void expect(const std::vector<int64_t>& order, TestCtx& ctx) const {
    const auto [all_y, all_lse] = attend(whole, 0, 0, ctx);
    const std::vector<double> y = all_y.values(), lse = all_lse.values();
    const auto got = merged(order, ctx);
    std::vector<double> of_last_y, of_last_lse;
    for (int64_t b = 0; b < whole.B; ++b)
      for (int64_t i = (whole.T - size) * C; i < whole.T * C; ++i)
        of_last_y.push_back(y[b * whole.T * C + i]);
    for (int64_t head = 0; head < whole.B * whole.H; ++head)
      for (int64_t t = whole.T - size; t < whole.T; ++t) of_last_lse.push_back(lse[head * whole.T + t]);
    // Scores are sums of D products of up to 4.5 each, times 1/sqrt(D); weights and y of up to 4.5 are
    // rounded to T before they are merged.
    const double score = 1 + 20 * std::sqrt(double(whole.D)),
                 weights = double(whole.D + whole.T + 32) * score * epsilon_of(stat(T));
    ASSERT_NO_FATAL_FAILURE(expect_close("attention_merge_inplace", got.second, of_last_lse,
                                         [&](int64_t) { return 2 * weights; }));
    ASSERT_NO_FATAL_FAILURE(expect_close("attention_merge_inplace", got.first, of_last_y,
                                         [&](int64_t) { return 4.5 * (2 * weights + 4 * epsilon_of(T)); }));
  }
};
void expect_blocks(Mask mask, int64_t blocks, const std::vector<std::vector<int64_t>>& orders) {
  TestCtx ctx;  // neither kernel has scratch
  constexpr struct { int64_t size, KV, D; } kShapes[] = {{1, 1, 5}, {33, 2, 32}, {9, 1, 65}, {20, 2, 1}};
  for (const DType T : float_types())
    for (const auto [size, KV, D] : kShapes) {
      const int64_t all = blocks * size, C = 2 * D, row = C + 2 * KV * D;
      const Blocks b{T,
                     {.B = 2,
                      .H = 2,
                      .KV = KV,
                      .T = all,
                      .D = D,
                      .qkv = {all * row, D, row},
                      .y = {all * C, D, C},
                      .scale = 1 / std::sqrt(float(D)),
                      .mask = mask},
                     blocks};
      for (const std::vector<int64_t>& order : orders) ASSERT_NO_FATAL_FAILURE(b.expect(order, ctx));
    }
}
TEST_P(L19_AttentionMerge, OwnKeysAndEarlierOnesInEitherOrderAreAllKeys) {
  expect_blocks(Mask::Causal, 2, {{0, 1}, {1, 0}});
}
TEST_P(L19_AttentionMerge, ThreeBlocksOfKeysInAnyOrderAreAllKeys) {
  expect_blocks(Mask::None, 3, {{0, 1, 2}, {2, 0, 1}});
}

}  // namespace
}  // namespace gradus
