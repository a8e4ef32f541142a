// Kernels over rows (bias, layernorm, softmax, cross-entropy, embedding) and attention against fp64 formulas.
#include <omp.h>

#include "kernels/cpu/vmath.h"
#include "tests/kernel_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L02_Kernels);
ON_EVERY_DEVICE(L03_Kernels);

constexpr RowShape kShapes[] = {{1, 1}, {7, 1}, {1, 257}, {33, 7}, {67, 255}};

DType stat(DType t) { return t == DType::F64 ? t : DType::F32; }
double arithmetic(DType t) { return epsilon_of(stat(t)); }
// One rounding to T of the value, and `ops` roundings of fp32 on numbers of size `size`.
std::function<double(int64_t)> bound(DType t, const std::vector<double>& expected, double ops, double size) {
  return [=](int64_t i) {
    return epsilon_of(t) * std::abs(expected[i]) + ops * arithmetic(t) * size +
           (t == DType::F16 ? 0x1p-25 : 0);
  };
}

TEST_P(L02_Kernels, Bias) {
  for (const DType t : float_types())
    for (const RowShape s : kShapes) {
      const int64_t n = s.rows * s.cols;
      const Buffer x = Buffer::random(t, n, 1), b = Buffer::random(t, s.cols, 2);
      Buffer y = Buffer::zeros(t, n), db = Buffer::zeros(t, s.cols);
      TestCtx ctx(cost::bias_bwd(s, t));
      const std::vector<double> vx = x.values(), vb = b.values();
      std::vector<double> expected(n), sums(s.cols);
      for (int64_t i = 0; i < n; ++i) expected[i] = vx[i] + vb[i % s.cols], sums[i % s.cols] += vx[i];
      table().bias_fwd(ctx, s, x.in(), b.in(), y.out(Write::Set));
      expect_close("bias_fwd", y.values(), expected, bound(t, expected, 1, 8));
      expect_add_is_set_plus("bias_fwd", t, n, [&](Out o) { table().bias_fwd(ctx, s, x.in(), b.in(), o); });
      table().bias_fwd(ctx, s, {nullptr, t}, b.in(), y.out(Write::Set));
      const std::vector<double> vy = y.values();
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(vy[i], vb[i % s.cols]) << "a null x counts as zero";
      table().bias_bwd(ctx, s, x.in(), db.out(Write::Set));
      expect_close("bias_bwd", db.values(), sums, bound(t, sums, double(s.rows), 4 * double(s.rows)));
      expect_add_is_set_plus("bias_bwd", t, s.cols, [&](Out o) { table().bias_bwd(ctx, s, x.in(), o); });
    }
}

struct LayerNormReference {
  std::vector<double> y, stats, dx, dgamma, dbeta;
  LayerNormReference(RowShape s, const std::vector<double>& x, const std::vector<double>& g,
                     const std::vector<double>& b, const std::vector<double>& dy)
      : y(x.size()), stats(2 * s.rows), dx(x.size()), dgamma(s.cols), dbeta(s.cols) {
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t at = r * s.cols;
      double mean = 0, var = 0, sum = 0, dot = 0;
      for (int64_t c = 0; c < s.cols; ++c) mean += x[at + c] / double(s.cols);
      for (int64_t c = 0; c < s.cols; ++c) var += (x[at + c] - mean) * (x[at + c] - mean) / double(s.cols);
      const double rstd = 1 / std::sqrt(var + double(1e-5f));
      stats[2 * r] = mean, stats[2 * r + 1] = rstd;
      for (int64_t c = 0; c < s.cols; ++c) {
        const double xhat = (x[at + c] - mean) * rstd;
        y[at + c] = xhat * g[c] + b[c];
        sum += dy[at + c] * g[c] / double(s.cols), dot += dy[at + c] * g[c] * xhat / double(s.cols);
        dgamma[c] += dy[at + c] * xhat, dbeta[c] += dy[at + c];
      }
      for (int64_t c = 0; c < s.cols; ++c)
        dx[at + c] = rstd * (dy[at + c] * g[c] - sum - (x[at + c] - mean) * rstd * dot);
    }
  }
};

TEST_P(L03_Kernels, LayerNorm) {
  for (const DType t : float_types())
    for (const RowShape s : {RowShape{7, 2}, RowShape{1, 257}, RowShape{33, 7}, RowShape{67, 255}}) {
      const int64_t n = s.rows * s.cols;
      const Buffer x = Buffer::random(t, n, 1), g = Buffer::random(t, s.cols, 2),
                   b = Buffer::random(t, s.cols, 3), dy = Buffer::random(t, n, 4);
      Buffer y = Buffer::zeros(t, n), stats = Buffer::zeros(stat(t), 2 * s.rows), dx = Buffer::zeros(t, n);
      Buffer dg = Buffer::zeros(t, s.cols), db = Buffer::zeros(stat(t), s.cols);
      TestCtx ctx(cost::layernorm_bwd(s, t));
      const LayerNormReference expected(s, x.values(), g.values(), b.values(), dy.values());
      table().layernorm_fwd(ctx, s, x.in(), g.in(), b.in(), y.out(Write::Set), stats.out(Write::Set), 1e-5f);
      // Two columns may nearly coincide: rstd then reaches 300 and magnifies the rounding of the mean.
      const double steep = s.cols == 2 ? 300 : 1, ops = 8 + double(s.cols);
      expect_close("layernorm_fwd", y.values(), expected.y, bound(t, expected.y, ops, 20 * steep));
      expect_close("layernorm stats", stats.values(), expected.stats,
                   bound(stat(t), expected.stats, ops, 4 * steep * steep));
      table().layernorm_bwd(ctx, s, x.in(), g.in(), stats.in(), dy.in(), dx.out(Write::Set),
                            dg.out(Write::Set), db.out(Write::Set));
      expect_close("layernorm_bwd dx", dx.values(), expected.dx,
                   bound(t, expected.dx, ops, 60 * steep * steep));
      expect_close("layernorm_bwd dgamma", dg.values(), expected.dgamma,
                   bound(t, expected.dgamma, double(s.rows) + 8, 20 * steep * double(s.rows)));
      expect_close("layernorm_bwd dbeta", db.values(), expected.dbeta,
                   bound(stat(t), expected.dbeta, double(s.rows), 4 * double(s.rows)));
      const Out none{nullptr, t, Write::Set};
      expect_add_is_set_plus("layernorm_fwd", t, n, [&](Out o) {
        table().layernorm_fwd(ctx, s, x.in(), g.in(), b.in(), o, none, 1e-5f);
      });
      expect_add_is_set_plus("layernorm_bwd dx", t, n, [&](Out o) {
        table().layernorm_bwd(ctx, s, x.in(), g.in(), stats.in(), dy.in(), o, none, none);
      });
      expect_add_is_set_plus("layernorm_bwd dgamma", t, s.cols, [&](Out o) {
        table().layernorm_bwd(ctx, s, x.in(), g.in(), stats.in(), dy.in(), none, o, none);
      });
    }
}

TEST_P(L03_Kernels, LayerNormOfALargeMeanKeepsItsVariance) {
  std::vector<double> x(256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1e4 + double(i % 2);
  const Buffer in(DType::F32, x), one(DType::F32, std::vector<double>(256, 1.0)),
      zero = Buffer::zeros(DType::F32, 256);
  Buffer y = Buffer::zeros(DType::F32, 256), stats = Buffer::zeros(DType::F32, 2);
  TestCtx ctx;
  table().layernorm_fwd(ctx, {1, 256}, in.in(), one.in(), zero.in(), y.out(Write::Set), stats.out(Write::Set),
                        1e-5f);
  const std::vector<double> vy = y.values();
  for (int i = 0; i < 256; ++i) ASSERT_NEAR(vy[i], i % 2 ? 1 : -1, 1e-3) << "element " << i;
}

std::vector<double> softmax_of(RowShape s, const std::vector<double>& x, std::vector<double>* lse = nullptr) {
  std::vector<double> p(x.size());
  for (int64_t r = 0; r < s.rows; ++r) {
    const double* row = &x[r * s.cols];
    const double max = *std::max_element(row, row + s.cols);
    double sum = 0;
    for (int64_t c = 0; c < s.cols; ++c) sum += std::exp(row[c] - max);
    for (int64_t c = 0; c < s.cols; ++c) p[r * s.cols + c] = std::exp(row[c] - max) / sum;
    if (lse) lse->push_back(max + std::log(sum));
  }
  return p;
}

TEST_P(L03_Kernels, Softmax) {
  for (const DType t : float_types())
    for (const RowShape s : kShapes) {
      const int64_t n = s.rows * s.cols;
      const Buffer x = Buffer::random(t, n, 1, 5), dy = Buffer::random(t, n, 2);
      Buffer y = Buffer::zeros(t, n), dx = Buffer::zeros(t, n);
      TestCtx ctx;
      const std::vector<double> expected = softmax_of(s, x.values());
      table().softmax_fwd(ctx, s, x.in(), y.out(Write::Set));
      expect_close("softmax_fwd", y.values(), expected, bound(t, expected, double(s.cols) + 32, 1));
      expect_add_is_set_plus("softmax_fwd", t, n, [&](Out o) { table().softmax_fwd(ctx, s, x.in(), o); });
      const std::vector<double> vy = y.values(), vdy = dy.values();
      std::vector<double> slope(n);
      for (int64_t r = 0; r < s.rows; ++r) {
        double dot = 0;
        for (int64_t c = 0; c < s.cols; ++c) dot += vy[r * s.cols + c] * vdy[r * s.cols + c];
        for (int64_t c = 0; c < s.cols; ++c)
          slope[r * s.cols + c] = vy[r * s.cols + c] * (vdy[r * s.cols + c] - dot);
      }
      table().softmax_bwd(ctx, s, y.in(), dy.in(), dx.out(Write::Set));
      expect_close("softmax_bwd", dx.values(), slope, bound(t, slope, double(s.cols) + 8, 4));
      expect_add_is_set_plus("softmax_bwd", t, n,
                             [&](Out o) { table().softmax_bwd(ctx, s, y.in(), dy.in(), o); });
    }
}

TEST_P(L03_Kernels, SoftmaxOfMaskedRowsAndOfNaN) {
  const double inf = INFINITY;
  for (const int64_t cols : {3, 300}) {
    std::vector<double> x(3 * cols, -inf);  // row 0: one finite number, row 1: all -inf, row 2: NaN
    x[cols - 1] = -1e30, x[2 * cols] = NAN, x[3 * cols - 1] = 1;
    const SharedVector<int32_t> ids = {int32_t(cols - 1), 0, 0};
    const Buffer in(DType::F32, x);
    Buffer y = Buffer::zeros(DType::F32, 3 * cols), loss = Buffer::zeros(DType::F32, 1),
           lse = Buffer::zeros(DType::F32, 3);
    TestCtx ctx(cost::cross_entropy_fwd({3, cols}, DType::F32));
    table().softmax_fwd(ctx, {3, cols}, in.in(), y.out(Write::Set));
    const std::vector<double> got = y.values();
    for (int64_t i = 0; i < cols; ++i) ASSERT_EQ(got[i], i == cols - 1) << "element " << i << " of " << cols;
    for (int64_t i = cols; i < 3 * cols; ++i) ASSERT_TRUE(std::isnan(got[i])) << "element " << i;
    table().cross_entropy_fwd(ctx, {3, cols}, in.in(), {ids.data(), DType::I32}, loss.out(Write::Set),
                              lse.out(Write::Set));
    EXPECT_EQ(lse.values()[0], double(-1e30f));
    EXPECT_EQ(lse.values()[1], -inf);
    EXPECT_TRUE(std::isnan(lse.values()[2]) && std::isnan(loss.values()[0]));
  }
}

struct Targets {
  explicit Targets(RowShape s) : ids(s.rows) {
    for (int64_t r = 0; r < s.rows; ++r) ids[r] = int32_t((r * 7) % s.cols);
  }
  CBuf in() const { return {ids.data(), DType::I32}; }
  SharedVector<int32_t> ids;
};

TEST_P(L02_Kernels, CrossEntropy) {
  for (const DType t : float_types())
    for (const RowShape s : kShapes) {
      const int64_t n = s.rows * s.cols;
      Buffer logits = Buffer::random(t, n, 1, 5), loss = Buffer::zeros(stat(t), 1),
             lse = Buffer::zeros(stat(t), s.rows);
      const Buffer dloss(stat(t), {3.0});
      const Targets targets(s);
      TestCtx ctx(cost::cross_entropy_fwd(s, t));
      std::vector<double> want_lse, x = logits.values(), p = softmax_of(s, x, &want_lse);
      double want = 0;
      for (int64_t r = 0; r < s.rows; ++r)
        want += (want_lse[r] - x[r * s.cols + targets.ids[r]]) / double(s.rows);
      table().cross_entropy_fwd(ctx, s, logits.in(), targets.in(), loss.out(Write::Set), lse.out(Write::Set));
      expect_close("cross_entropy lse", lse.values(), want_lse,
                   bound(stat(t), want_lse, double(s.cols) + 32, 20));
      expect_close("cross_entropy loss", loss.values(), {want},
                   bound(stat(t), {want}, double(s.cols) + 32, 20));
      for (int64_t i = 0; i < n; ++i)
        p[i] = 3.0 / double(s.rows) * (p[i] - (targets.ids[i / s.cols] == i % s.cols));
      table().cross_entropy_bwd_inplace(ctx, s, targets.in(), lse.in(), dloss.in(), logits.out(Write::Set));
      expect_close("cross_entropy_bwd", logits.values(), p,
                   bound(t, p, double(s.cols) + 64, 3.0 / double(s.rows) * 20));
    }
}

// The maximum rises so far that what was summed before must be scaled down.
TEST_P(L02_Kernels, CrossEntropyOfALongRowThatRises) {
  std::vector<double> values(5000, 0.0);
  values[4500] = 100;
  const Buffer x(DType::F32, values);
  Buffer lse = Buffer::zeros(DType::F32, 1);
  TestCtx ctx(cost::cross_entropy_fwd({1, 5000}, DType::F32));
  table().cross_entropy_fwd(ctx, {1, 5000}, x.in(), Targets({1, 5000}).in(), {}, lse.out(Write::Set));
  EXPECT_EQ(lse.values()[0], 100);
}

TEST_P(L02_Kernels, TargetsAndIdsOutOfRangeAreNamed) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints the sentence and does nothing more for this process";
  Buffer x = Buffer::random(DType::F32, 6, 1), loss = Buffer::zeros(DType::F32, 1),
         lse = Buffer::zeros(DType::F32, 2);
  TestCtx ctx(cost::cross_entropy_fwd({2, 3}, DType::F32));
  for (const int32_t bad : {-1, 3}) {
    const int32_t ids[] = {0, bad};
    try {
      table().cross_entropy_fwd(ctx, {2, 3}, x.in(), {ids, DType::I32}, loss.out(Write::Set),
                                lse.out(Write::Set));
      FAIL() << "target " << bad << " of 3 classes was accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("row 1"), std::string::npos) << e.what();
    }
    EXPECT_THROW(table().embedding_fwd(ctx, {2, 3}, 3, x.in(), {ids, DType::I32}, x.out(Write::Set)), Error);
  }
}

// Seven ids: 3 and 5 do not occur, 1 only in the last row.
void embedding_of(RowShape s) {
  SharedVector<int32_t> ids(s.rows);
  for (int64_t r = 0; r < s.rows; ++r) ids[r] = int32_t(r * r % 13 % 4 * 2);
  ids.back() = 1;
  const int64_t n = s.rows * s.cols, size = 7 * s.cols;
  for (const DType t : float_types()) {
    const Buffer w = Buffer::random(t, size, 1), dy = Buffer::random(t, n, 2);
    Buffer y = Buffer::zeros(t, n), dw = Buffer::random(stat(t), size, 3);
    TestCtx ctx(cost::embedding_bwd(s, t));
    table().embedding_fwd(ctx, s, 7, w.in(), {ids.data(), DType::I32}, y.out(Write::Set));
    std::vector<double> sums(size);
    const std::vector<double> vy = y.values(), vw = w.values(), vdy = dy.values();
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(vy[i], vw[ids[i / s.cols] * s.cols + i % s.cols]) << "embedding_fwd element " << i;
      sums[ids[i / s.cols] * s.cols + i % s.cols] += vdy[i];
    }
    table().embedding_bwd(ctx, s, 7, {ids.data(), DType::I32}, dy.in(), dw.out(Write::Set));
    expect_close("embedding_bwd", dw.values(), sums,
                 bound(stat(t), sums, double(s.rows), 4 * double(s.rows)));
    expect_add_is_set_plus("embedding_bwd", t, size, [&](Out o) {
      table().embedding_bwd(ctx, s, 7, {ids.data(), DType::I32}, dy.in(), o);
    });
  }
}
TEST_P(L03_Kernels, Embedding) {
  for (const RowShape s : {RowShape{9, 7}, RowShape{150, 40}, RowShape{3, 300}}) embedding_of(s);
}

TEST(L02_KernelsOnCpu, VectorFunctionsAreWithinTheirBounds) {
  const auto ulps = [](float got, double want) {
    const float nearest = float(want), next = std::nextafter(std::abs(nearest), INFINITY);
    return std::abs(double(got) - want) / (double(next) - std::abs(double(nearest)));
  };
  double exp_worst = 0, tanh_worst = 0, erf_worst = 0;
  for (uint32_t bits = 0; bits < 0x7F800000; bits += 4099)
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      const double e = std::exp(double(x));
      if (e > 3.4028235e38)
        EXPECT_TRUE(std::isinf(cpu::vexp(x))) << x;
      else
        exp_worst = std::max(exp_worst, x < -86.9f ? double(cpu::vexp(x)) : ulps(cpu::vexp(x), e));
      tanh_worst = std::max(tanh_worst, ulps(cpu::vtanh(x), std::tanh(double(x))));
      erf_worst = std::max(erf_worst, ulps(cpu::verf(x), std::erf(double(x))));
    }
  EXPECT_LE(exp_worst, 2);
  EXPECT_LE(tanh_worst, 2);
  EXPECT_LE(erf_worst, 2);
  EXPECT_TRUE(std::isnan(cpu::vexp(NAN)) && std::isnan(cpu::vtanh(NAN)) && std::isnan(cpu::verf(NAN)));
  EXPECT_EQ(cpu::verf(-INFINITY), -1);
  EXPECT_EQ(cpu::vexp(-INFINITY), 0);
  EXPECT_TRUE(std::signbit(cpu::vtanh(-0.0f)));
}

}  // namespace
}  // namespace gradus
