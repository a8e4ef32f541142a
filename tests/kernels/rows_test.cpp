// Kernels over rows (bias, layernorm, embedding) against formulas in fp64.
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L02_Rows);
ON_EVERY_DEVICE(L03_Rows);

TEST_P(L02_Rows, Bias) {
  std::vector<RowShape> shapes = row_shapes();
  shapes.push_back({3, 0});
  for (const DType T : float_types())
    for (const RowShape s : shapes) {
      const int64_t n = s.rows * s.cols;
      const Buffer x = Buffer::random(T, n, 1), b = Buffer::random(T, s.cols, 2);
      const std::vector<double> vx = x.values(), vb = b.values();
      Expected y{"y", {T}, std::vector<double>(n)},
          only_b{"y of a null x, which counts as zero", {T}, y.value};
      Expected db{"db", t_or_fp32(T), std::vector<double>(s.cols), std::vector<double>(s.cols)};
      for (int64_t i = 0; i < n; ++i) {
        const int64_t c = i % s.cols;
        y.value[i] = vx[i] + vb[c], only_b.value[i] = vb[c];
        db.value[c] += vx[i], db.error[c] += double(s.rows) * std::abs(vx[i]);
      }
      for (const bool with_x : {true, false})
        expect_contract({"bias_fwd", {with_x ? y : only_b}, [&](const Ctx& ctx, const std::vector<Out>& out) {
                           table().bias_fwd(ctx, s, with_x ? x.in() : CBuf{nullptr, T}, b.in(), out[0]);
                         }});
      const TestedCall bwd{
          "bias_bwd",
          {db},
          [&](const Ctx& ctx, const std::vector<Out>& out) { table().bias_bwd(ctx, s, x.in(), out[0]); },
          cost::bias_bwd(s, T)};
      expect_contract(bwd, all_ways(bwd.outputs));
    }
}

constexpr float kEps = 3e-4f;
// The expected results of layernorm, and the allowed errors: a sum of n terms may have n roundings of its
// terms' sizes.
struct LayerNorm {
  LayerNorm(RowShape s, DType T)
      : s(s),
        T(T),
        n(s.rows * s.cols),
        x(Buffer::random(T, n, 1)),
        gamma(Buffer::random(T, s.cols, 2)),
        beta(Buffer::random(T, s.cols, 3)),
        dy(Buffer::random(T, n, 4)),
        stats(Buffer::zeros(stat(T), 0)) {
    forward();
    backward();
  }
  void forward() {
    const std::vector<double> vx = x.values(), g = gamma.values(), b = beta.values();
    for (int64_t r = 0; r < s.rows; ++r) {
      const double *row = &vx[r * s.cols], cols = double(s.cols);
      double mean = 0, size = 0, var = 0;
      for (int64_t c = 0; c < s.cols; ++c) mean += row[c] / cols, size += std::abs(row[c]) / cols;
      for (int64_t c = 0; c < s.cols; ++c) var += (row[c] - mean) * (row[c] - mean) / cols;
      const double rstd = 1 / std::sqrt(var + double(kEps));
      // If the columns are nearly equal, the error of the mean is as large as their distances from it.
      const double steep = 1 + size * rstd, ops = 8 + cols;
      for (const double v : {mean, rstd}) statistics.value.push_back(v);
      for (const double v : {ops * size, ops * rstd * steep}) statistics.error.push_back(v);
      for (int64_t c = 0; c < s.cols; ++c) {
        const double xhat = (row[c] - mean) * rstd;
        y.value.push_back(xhat * g[c] + b[c]);
        y.error.push_back(ops * steep * (1 + std::abs(xhat)) * std::abs(g[c]) + std::abs(b[c]));
      }
    }
  }
  void backward() {  // uses the stored statistics
    stats = Buffer(stat(T), statistics.value);
    const std::vector<double> vx = x.values(), g = gamma.values(), vdy = dy.values(), of = stats.values();
    for (Expected* e : {&dgamma, &dbeta}) e->value = e->error = std::vector<double>(s.cols);
    for (int64_t r = 0; r < s.rows; ++r) {
      const double mean = of[2 * r], rstd = of[2 * r + 1], cols = double(s.cols), rows = double(s.rows);
      double sum = 0, dot = 0, sum_size = 0, dot_size = 0;
      for (int64_t c = 0; c < s.cols; ++c) {
        const double d = vdy[r * s.cols + c], xhat = (vx[r * s.cols + c] - mean) * rstd;
        sum += d * g[c] / cols, sum_size += std::abs(d * g[c]) / cols;
        dot += d * g[c] * xhat / cols, dot_size += std::abs(d * g[c] * xhat) / cols;
        dgamma.value[c] += d * xhat, dgamma.error[c] += (rows + 4) * std::abs(d * xhat);
        dbeta.value[c] += d, dbeta.error[c] += rows * std::abs(d);
      }
      for (int64_t c = 0; c < s.cols; ++c) {
        const double d = vdy[r * s.cols + c] * g[c], xhat = (vx[r * s.cols + c] - mean) * rstd;
        dx.value.push_back(rstd * (d - sum - xhat * dot));
        dx.error.push_back(rstd * (4 * std::abs(d) + (cols + 6) * (sum_size + std::abs(xhat) * dot_size)));
      }
    }
  }
  RowShape s;
  DType T;
  int64_t n;
  Buffer x, gamma, beta, dy, stats;
  Expected y{"y", {T}, {}}, statistics{"stats", {stat(T)}, {}};
  Expected dx{"dx", {T}, {}}, dgamma{"dgamma", t_or_fp32(T), {}}, dbeta{"dbeta", t_or_fp32(T), {}};
};

// The ways are all subsets of the outputs, for a shape with several rows per partition, or some of them.
void layernorm_of(RowShape s, std::vector<Way> ways(const std::vector<Expected>&)) {
  for (const DType T : float_types()) {
    const LayerNorm l(s, T);
    const TestedCall fwd{
        "layernorm_fwd", {l.y, l.statistics}, [&](const Ctx& ctx, const std::vector<Out>& y) {
          table().layernorm_fwd(ctx, s, l.x.in(), l.gamma.in(), l.beta.in(), y[0], y[1], kEps);
        }};
    const TestedCall bwd{"layernorm_bwd",
                         {l.dx, l.dgamma, l.dbeta},
                         [&](const Ctx& ctx, const std::vector<Out>& y) {
                           table().layernorm_bwd(ctx, s, l.x.in(), l.gamma.in(), l.stats.in(), l.dy.in(),
                                                 y[0], y[1], y[2]);
                         },
                         cost::layernorm_bwd(s, T)};
    for (const TestedCall& k : {fwd, bwd}) ASSERT_NO_FATAL_FAILURE(expect_contract(k, ways(k.outputs)));
  }
}
TEST_P(L03_Rows, LayerNorm) {
  for (const RowShape s : row_shapes()) layernorm_of(s, some_ways);
  layernorm_of({7, 2}, some_ways);
}
TEST_P(L03_Rows, LayerNormOfEverySubsetOfOutputs) { layernorm_of({35, 9}, all_ways); }

// Expects that the layernorm of a row that alternates between mean - 1/2 and mean + 1/2 is -1 and 1.
void expect_alternating(int64_t cols, double mean, double error) {
  std::vector<double> x(cols);
  for (int64_t i = 0; i < cols; ++i) x[i] = mean + (i % 2 ? 0.5 : -0.5);
  const Buffer in(DType::F32, x), one(DType::F32, std::vector<double>(cols, 1.0)),
      zero = Buffer::zeros(DType::F32, cols);
  Buffer y = Buffer::zeros(DType::F32, cols), stats = Buffer::zeros(DType::F32, 2);
  TestCtx ctx;
  table().layernorm_fwd(ctx, {1, cols}, in.in(), one.in(), zero.in(), y.out(Write::Set),
                        stats.out(Write::Set), 1e-5f);
  EXPECT_NEAR(stats.values()[0], mean, std::max(0x1p-7, mean * 0x1p-23));
  const std::vector<double> got = y.values();
  for (int64_t i = 0; i < cols; ++i) ASSERT_NEAR(got[i], i % 2 ? 1 : -1, error) << "element " << i;
}
TEST_P(L03_Rows, LayerNormOfALargeMeanKeepsItsVariance) {
  expect_alternating(256, 1e4 + 0.5, 1e-3);
  expect_alternating(256, 0x1p20 + 0.5, 1e-3);  // the first mean's error is a large part of the deviation
}

// A plain fp32 sum of this row has an error of thousands: most additions lose the 5/16, all in the same
// direction. The sum of the N differences from that first mean, each about 1, may have an error of N eps per
// addition: so the mean has one of N eps, which is 2^17 2^-24.
TEST_P(L03_Rows, LayerNormOfALongRowOfALargeMeanIsThatOfItsMean) {
  expect_alternating(1 << 17, 4096.8125, 0x1p-6);
}

// In any order of summation, fp32 rounds the sums of four and more of these numbers; the first mean has an
// error of some tenths.
TEST_P(L03_Rows, LayerNormOfARowWhoseMeanRoundsKeepsItsVariance) {
  for (const int64_t cols : {100, 256, 1000}) {
    std::vector<double> x(cols);
    for (int64_t i = 0; i < cols; ++i) x[i] = 0x1p22 + (i % 3 == 0);
    const double ones = double((cols + 2) / 3) / double(cols), rstd = 1 / std::sqrt(ones * (1 - ones) + kEps);
    const Buffer in(DType::F32, x), one(DType::F32, std::vector<double>(cols, 1.0));
    Buffer stats = Buffer::zeros(DType::F32, 2);
    TestCtx ctx;
    table().layernorm_fwd(ctx, {1, cols}, in.in(), one.in(), one.in(), {}, stats.out(Write::Set), kEps);
    EXPECT_NEAR(stats.values()[1], rstd, 1e-4 * rstd) << cols;
  }
}

TEST_P(L03_Rows, LayerNormOfNanIsNan) {
  std::vector<double> values(3 * 70, 1.0);
  values[69] = NAN, values[140] = INFINITY;
  const Buffer x(DType::F32, values), one(DType::F32, std::vector<double>(70, 1.0));
  Buffer y = Buffer::zeros(DType::F32, 3 * 70);
  TestCtx ctx;
  table().layernorm_fwd(ctx, {3, 70}, x.in(), one.in(), one.in(), y.out(Write::Set), {}, kEps);
  const std::vector<double> got = y.values();
  for (int i = 0; i < 3 * 70; ++i) ASSERT_EQ(std::isnan(got[i]), i / 70 != 1) << "element " << i;
}

// Seven ids: 3 and 5 do not occur, 1 only in the last row. The sums are in the order of the rows, so the
// expected results are exact.
TEST_P(L03_Rows, Embedding) {
  std::vector<RowShape> shapes{{0, 7}, {9, 7}, {40, 20}, {3, 300}, {3, 1030}, {260, 130}};
  for (const RowShape s : shapes) {
    SharedVector<int32_t> ids(s.rows);
    for (int64_t r = 0; r < s.rows; ++r) ids[r] = int32_t(r * r % 13 % 4 * 2);
    if (s.rows > 0) ids.back() = 1;
    const int64_t n = s.rows * s.cols, size = 7 * s.cols;
    for (const DType T : float_types()) {
      const Buffer w = Buffer::random(T, size, 1), dy = Buffer::random(T, n, 2);
      const std::vector<double> vw = w.values(), vdy = dy.values();
      Expected y{"y", {T}, {}}, dw{"dtable", t_or_fp32(T), std::vector<double>(size)};
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = ids[i / s.cols] * s.cols + i % s.cols;
        y.value.push_back(vw[at]);
        dw.value[at] = rounded(stat(T), dw.value[at] + vdy[i]);
      }
      const TestedCall fwd{"embedding_fwd", {y}, [&](const Ctx& ctx, const std::vector<Out>& out) {
                             table().embedding_fwd(ctx, s, 7, w.in(), {ids.data(), DType::I32}, out[0]);
                           }};
      const TestedCall bwd{"embedding_bwd",
                           {dw},
                           [&](const Ctx& ctx, const std::vector<Out>& out) {
                             table().embedding_bwd(ctx, s, 7, {ids.data(), DType::I32}, dy.in(), out[0]);
                           },
                           cost::embedding_bwd(s, T)};
      for (const TestedCall& k : {fwd, bwd}) ASSERT_NO_FATAL_FAILURE(expect_contract(k, all_ways(k.outputs)));
    }
  }
}

}  // namespace
}  // namespace gradus
