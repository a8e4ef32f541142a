// The kernels that Llama adds: RMSNorm and SwiGLU, against formulas in fp64, and their costs. (Its rotary
// positions: gelu_rotary_test.cpp.)
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L21_Kernels);

constexpr float kEps = 3e-4f;
// The expected results of rmsnorm, and the allowed errors in roundings: a sum of n terms may have n roundings
// of its terms' sizes.
struct RmsNorm {
  RmsNorm(RowShape s, DType T)
      : s(s),
        T(T),
        x(Buffer::random(T, s.rows * s.cols, 1)),
        gamma(Buffer::random(T, s.cols, 2)),
        dy(Buffer::random(T, s.rows * s.cols, 3)),
        stats(Buffer::zeros(stat(T), 0)) {
    const std::vector<double> vx = x.values(), g = gamma.values();
    const double cols = double(s.cols);
    for (int64_t r = 0; r < s.rows; ++r) {
      double mean = s.cols > 0 ? 0 : NAN;  // the mean of no numbers
      for (int64_t c = 0; c < s.cols; ++c) mean += vx[r * s.cols + c] * vx[r * s.cols + c] / cols;
      const double rstd = 1 / std::sqrt(mean + double(kEps));
      rstds.value.push_back(rstd), rstds.error.push_back((cols + 6) * rstd);
      for (int64_t c = 0; c < s.cols; ++c) {
        y.value.push_back(vx[r * s.cols + c] * rstd * g[c]);
        y.error.push_back((cols + 8) * std::abs(y.value.back()));
      }
    }
    backward(vx, g);
  }
  void backward(const std::vector<double>& vx, const std::vector<double>& g) {  // uses stored statistics
    stats = Buffer(stat(T), rstds.value);
    const std::vector<double> vdy = dy.values(), of = stats.values();
    const double cols = double(s.cols), rows = double(s.rows);
    for (int64_t r = 0; r < s.rows; ++r) {
      const double *row = &vx[r * s.cols], *grad = &vdy[r * s.cols], rstd = of[r];
      double dot = 0, size = 0;
      for (int64_t c = 0; c < s.cols; ++c) {
        const double xhat = row[c] * rstd, term = grad[c] * g[c] * xhat / cols;
        dot += term, size += std::abs(term);
        dgamma.value[c] += grad[c] * xhat, dgamma.error[c] += (rows + 4) * std::abs(grad[c] * xhat);
      }
      for (int64_t c = 0; c < s.cols; ++c) {
        const double xhat = row[c] * rstd, d = grad[c] * g[c];
        dx.value.push_back(rstd * (d - xhat * dot));
        dx.error.push_back(rstd * (4 * std::abs(d) + (cols + 8) * std::abs(xhat) * size));
      }
    }
  }
  RowShape s;
  DType T;
  Buffer x, gamma, dy, stats;
  Expected y{"y", {T}, {}}, rstds{"stats", {stat(T)}, {}}, dx{"dx", {T}, {}};
  Expected dgamma{"dgamma", t_or_fp32(T), std::vector<double>(s.cols), std::vector<double>(s.cols)};
};

void rmsnorm_of(RowShape s, std::vector<Way> ways(const std::vector<Expected>&)) {
  for (const DType T : float_types()) {
    const RmsNorm n(s, T);
    const TestedCall fwd{"rmsnorm_fwd",
                         {n.y, n.rstds},
                         [&](const Ctx& ctx, const std::vector<Out>& y) {
                           table().rmsnorm_fwd(ctx, s, n.x.in(), n.gamma.in(), y[0], y[1], kEps);
                         },
                         cost::rmsnorm_fwd(s, T)};
    const TestedCall bwd{"rmsnorm_bwd",
                         {n.dx, n.dgamma},
                         [&](const Ctx& ctx, const std::vector<Out>& y) {
                           table().rmsnorm_bwd(ctx, s, n.x.in(), n.gamma.in(), n.stats.in(), n.dy.in(), y[0],
                                               y[1]);
                         },
                         cost::rmsnorm_bwd(s, T)};
    for (const TestedCall& k : {fwd, bwd}) ASSERT_NO_FATAL_FAILURE(expect_contract(k, ways(k.outputs)));
  }
}
TEST_P(L21_Kernels, RmsNorm) {
  for (const RowShape s : row_shapes()) rmsnorm_of(s, some_ways);
  for (const RowShape s : {RowShape{7, 2}, {3, 0}, {2, 256}}) rmsnorm_of(s, some_ways);
}
TEST_P(L21_Kernels, RmsNormOfEverySubsetOfOutputs) { rmsnorm_of({35, 9}, all_ways); }

// rmsnorm's y of one row in fp32, followed by its statistic.
std::vector<double> rmsnorm_of_row(const std::vector<double>& row) {
  const int64_t cols = int64_t(row.size());
  const Buffer x(DType::F32, row), one(DType::F32, std::vector<double>(row.size(), 1.0));
  Buffer y = Buffer::zeros(DType::F32, cols), stats = Buffer::zeros(DType::F32, 1);
  TestCtx ctx;
  table().rmsnorm_fwd(ctx, {1, cols}, x.in(), one.in(), y.out(Write::Set), stats.out(Write::Set), kEps);
  std::vector<double> got = y.values();
  got.push_back(stats.values()[0]);
  return got;
}
TEST_P(L21_Kernels, RmsNormOfZerosNanAndInfinity) {
  const double of_eps = 1 / std::sqrt(double(kEps));
  const std::vector<double> zeros = rmsnorm_of_row(std::vector<double>(70, 0.0));
  for (int i = 0; i < 70; ++i) EXPECT_EQ(zeros[i], 0);
  EXPECT_NEAR(zeros[70], of_eps, 4 * 0x1p-24 * of_eps);
  std::vector<double> row(70, 1.0);
  row[69] = NAN;
  for (const double v : rmsnorm_of_row(row)) EXPECT_TRUE(std::isnan(v));
  row[69] = INFINITY;
  std::vector<double> expected(71, 0.0), got = rmsnorm_of_row(row);
  EXPECT_TRUE(std::isnan(got[69])) << "infinity times 0";
  got[69] = 0;
  EXPECT_EQ(got, expected);
  EXPECT_EQ(rmsnorm_of_row(std::vector<double>(70, 0x1p64)), expected) << "squares beyond fp32";
  for (const double big : {0x1p60, -0x1p60})
    EXPECT_NEAR(rmsnorm_of_row({big, 0, 0, 0})[0], big > 0 ? 2 : -2, 8 * 0x1p-24);
}

// Gates just below and above those where e^-gate, or 1 minus its inverse, becomes 0 or infinity in fp32.
constexpr double kGates[] = {0, 1e-3, 15, -15, 30, -30, 86.5, -86.5, 87.5, -87.5, 100, -100, 1e4, -1e4};
// For a gate below -88.7, e^-gate is infinity in fp32: silu is 0, but its exact size is up to 3e-37. So its
// products with numbers up to 6 have errors below 1e-35.
constexpr double kLeast = 1e-35 * 0x1p24;  // in epsilons of fp32

void swiglu_of(RowShape s, DType T) {
  const int64_t n = s.rows * s.cols;
  std::vector<double> some = Buffer::random(T, 2 * n, 1, 2).values();
  for (int64_t c = 0; s.rows > 0 && c < std::min<int64_t>(s.cols, std::size(kGates)); ++c)
    some[(s.rows - 1) * 2 * s.cols + c] = kGates[c];
  const Buffer x(T, some), dy = Buffer::random(T, n, 2);
  const std::vector<double> vx = x.values(), vdy = dy.values();
  Expected y{"y", {T}, std::vector<double>(n), std::vector<double>(n)};
  Expected dx{"dx", {T}, std::vector<double>(2 * n), std::vector<double>(2 * n)};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t gate = i / s.cols * 2 * s.cols + i % s.cols, value = gate + s.cols;
    const double g = vx[gate], v = vx[value], sigmoid = 1 / (1 + std::exp(-g)), silu = g * sigmoid;
    y.value[i] = silu * v, y.error[i] = 8 * std::abs(y.value[i]) + kLeast;
    dx.value[value] = vdy[i] * silu, dx.error[value] = 8 * std::abs(dx.value[value]) + kLeast;
    dx.value[gate] = vdy[i] * v * (sigmoid + silu * (1 - sigmoid));
    dx.error[gate] = 8 * std::abs(vdy[i] * v) * (sigmoid + std::abs(silu)) + kLeast;  // error of 1 - s: s eps
  }
  const TestedCall fwd{
      "swiglu_fwd",
      {y},
      [&](const Ctx& ctx, const std::vector<Out>& out) { table().swiglu_fwd(ctx, s, x.in(), out[0]); },
      cost::swiglu_fwd(s, T)};
  const TestedCall bwd{"swiglu_bwd",
                       {dx},
                       [&](const Ctx& ctx, const std::vector<Out>& out) {
                         table().swiglu_bwd(ctx, s, x.in(), dy.in(), out[0]);
                       },
                       cost::swiglu_bwd(s, T)};
  for (const TestedCall& k : {fwd, bwd}) ASSERT_NO_FATAL_FAILURE(expect_contract(k, all_ways(k.outputs)));
}
TEST_P(L21_Kernels, SwiGlu) {
  std::vector<RowShape> shapes = row_shapes();
  shapes.insert(shapes.end(), {{3, 0}, {2, 256}, {5, 14}});
  for (const RowShape s : shapes)
    for (const DType T : float_types()) ASSERT_NO_FATAL_FAILURE(swiglu_of(s, T));
}

// A pair of gate and value, and the results of plain arithmetic with dy = 1.
TEST_P(L21_Kernels, SwiGluOfNanAndInfinityIsThatOfPlainArithmetic) {
  constexpr double kInf = INFINITY;
  struct {
    double gate, value, y, dgate, dvalue;
  } const cases[] = {{kInf, 2, kInf, NAN, kInf},      {-kInf, 2, NAN, NAN, NAN},
                     {NAN, 2, NAN, NAN, NAN},         {2, NAN, NAN, NAN, 1.761594},
                     {0, kInf, NAN, kInf, 0},         {-200, kInf, NAN, NAN, 0},
                     {200, -kInf, -kInf, -kInf, 200}, {0x1p120, 3, 3 * 0x1p120, 3, 0x1p120},
                     {-0x1p120, 3, 0, 0, 0}};
  for (const auto& c : cases) {
    const Buffer x(DType::F32, {c.gate, c.value}), dy(DType::F32, {1});
    Buffer y = Buffer::zeros(DType::F32, 1), dx = Buffer::zeros(DType::F32, 2);
    TestCtx ctx;
    table().swiglu_fwd(ctx, {1, 1}, x.in(), y.out(Write::Set));
    table().swiglu_bwd(ctx, {1, 1}, x.in(), dy.in(), dx.out(Write::Set));
    const std::vector<double> got{y.values()[0], dx.values()[0], dx.values()[1]},
        expected{c.y, c.dgate, c.dvalue};
    expect_close("swiglu of " + std::to_string(c.gate) + " and " + std::to_string(c.value), got, expected,
                 [&](int64_t i) { return std::isfinite(expected[i]) ? 1e-6 * std::abs(expected[i]) : 0; });
  }
}

// 3 rows of 5, that is 15 elements; for swiglu, those of y.
TEST(L21_Cost, OfLlamasKernels) {
  constexpr OpClass E = OpClass::Elementwise, N = OpClass::Normalization;
  constexpr DType F64 = DType::F64, F32 = DType::F32, BF16 = DType::BF16;
  const RowShape s{3, 5};
  // squares and their sum: 2; rstd, gamma: 2
  EXPECT_EQ(cost::rmsnorm_fwd(s, F32), (Cost{N, 60, 120}));
  EXPECT_EQ(cost::rmsnorm_fwd(s, BF16), (Cost{N, 60, 60}));
  // the sum of g xhat: 4; dx: 5; dgamma: 3. x, dy, dx. Scratch: (3 + 1) * 5 sums; (32 + 1) * 5.
  EXPECT_EQ(cost::rmsnorm_bwd(s, F32), (Cost{N, 180, 180, 80}));
  EXPECT_EQ(cost::rmsnorm_bwd({40, 5}, BF16), (Cost{N, 2400, 1200, 660}));
  EXPECT_EQ(cost::rmsnorm_bwd(s, F64), (Cost{N, 180, 360, 160}));
  // exp, 1 +, divide, times the value. Gate, value, y.
  EXPECT_EQ(cost::swiglu_fwd(s, F32), (Cost{E, 60, 180}));
  EXPECT_EQ(cost::swiglu_fwd(s, F64), (Cost{E, 60, 360}));
  // s: 3; silu and the value's gradient: 2; 1 - s, times silu, + s, times dy and the value: 5. x, dy, dx.
  EXPECT_EQ(cost::swiglu_bwd(s, F32), (Cost{E, 150, 300}));
  EXPECT_EQ(cost::swiglu_bwd(s, BF16), (Cost{E, 150, 150}));
  // 8 tokens; in 4 heads of q and 2 of k, two products and a sum rotate each of 4 of the 6 elements; 2 heads
  // of v are copied. Scratch: 4 positions, cosine and sine of 2 angles.
  const RotaryShape r{.B = 2, .T = 4, .H = 4, .KV = 2, .D = 6, .dims = 4};
  EXPECT_EQ(cost::rotary(r, F32), (Cost{E, 8 * 6 * 4 * 3, 2 * 8 * 8 * 6 * 4, 64}));
}

}  // namespace
}  // namespace gradus
