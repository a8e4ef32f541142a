// Softmax and cross-entropy against formulas in fp64, and the vector functions that they use.
#include "kernels/cpu/vmath.h"
#include "tests/kernels/kernel_contract.h"
#include "tests/kernels/ulps.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L02_Softmax);
ON_EVERY_DEVICE(L03_Softmax);
ON_EVERY_DEVICE(L07_CrossEntropy);

// row_shapes(), and rows that cpu takes in one, two and three pieces.
std::vector<RowShape> softmax_shapes() {
  std::vector<RowShape> shapes = row_shapes();
  for (const int64_t cols : {2048, 2049, 4100}) shapes.push_back({2, cols});
  return shapes;
}

// Rows whose largest element is the last one, so that the sum before it must be scaled down.
Buffer rising(DType T, RowShape s) {
  std::vector<double> x = Buffer::random(T, s.rows * s.cols, 1, 5).values();
  for (int64_t r = 1; r <= s.rows && s.cols > 0; ++r) x[r * s.cols - 1] = r % 2 ? 90 : 22;
  return {T, x};
}

TEST_P(L03_Softmax, Softmax) {
  std::vector<RowShape> shapes = softmax_shapes();
  shapes.push_back({3, 0});
  for (const DType T : float_types())
    for (const RowShape s : shapes)
      for (const Buffer& x : {Buffer::random(T, s.rows * s.cols, 1, 5), rising(T, s)}) {
        const std::vector<double> vx = x.values();
        Expected y{"y", {T}, {}};
        for (int64_t r = 0; r < s.rows; ++r) {
          const double* row = vx.data() + r * s.cols;
          const double max = s.cols ? *std::max_element(row, row + s.cols) : 0;
          double sum = 0;
          for (int64_t c = 0; c < s.cols; ++c) sum += std::exp(row[c] - max);
          for (int64_t c = 0; c < s.cols; ++c) {
            y.value.push_back(std::exp(row[c] - max) / sum);
            // for x below -86.9, e^x may be 0 on cpu and is subnormal on a GPU
            y.error.push_back(y.value.back() * (double(s.cols) + 8 + max - row[c]) + 0x1p-98);
          }
        }
        const TestedCall fwd{"softmax_fwd", {y}, [&](const Ctx& ctx, const std::vector<Out>& out) {
                               table().softmax_fwd(ctx, s, x.in(), out[0]);
                             }};
        ASSERT_NO_FATAL_FAILURE(expect_contract(fwd, all_ways(fwd.outputs)));
      }
}
TEST_P(L03_Softmax, SoftmaxBackward) {
  for (const DType T : float_types())
    for (const RowShape s : softmax_shapes()) {
      const int64_t n = s.rows * s.cols;
      const Buffer y = Buffer::random(T, n, 1), dy = Buffer::random(T, n, 2);  // y need not have the sum 1
      const std::vector<double> vy = y.values(), vdy = dy.values();
      Expected dx{"dx", {T}, {}};
      for (int64_t r = 0; r < s.rows; ++r) {
        double dot = 0, size = 0;
        for (int64_t i = r * s.cols; i < (r + 1) * s.cols; ++i)
          dot += vy[i] * vdy[i], size += std::abs(vy[i] * vdy[i]);
        for (int64_t i = r * s.cols; i < (r + 1) * s.cols; ++i) {
          dx.value.push_back(vy[i] * (vdy[i] - dot));
          dx.error.push_back(std::abs(vy[i]) * (2 * std::abs(vdy[i]) + (double(s.cols) + 4) * size));
        }
      }
      const TestedCall bwd{"softmax_bwd", {dx}, [&](const Ctx& ctx, const std::vector<Out>& out) {
                             table().softmax_bwd(ctx, s, y.in(), dy.in(), out[0]);
                           }};
      ASSERT_NO_FATAL_FAILURE(expect_contract(bwd, all_ways(bwd.outputs)));
    }
}

TEST_P(L03_Softmax, SoftmaxOfMaskedRowsAndOfNaN) {
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
    table().cross_entropy_fwd(ctx, {3, cols}, in.in(), {ids.data(), DType::I32}, {}, loss.out(Write::Set),
                              lse.out(Write::Set));
    EXPECT_EQ(lse.values()[0], double(-1e30f));
    EXPECT_EQ(lse.values()[1], -inf);
    EXPECT_TRUE(std::isnan(lse.values()[2]) && std::isnan(loss.values()[0]));
  }
}

// Cross-entropy with targets of which some do not count, with and without a count that includes other calls.
struct Case {
  DType T;
  RowShape s;
  double count = 0;    // 0: none is given
  int64_t one_in = 1;  // one of this many targets counts
  Buffer logits;
  SharedVector<int32_t> ids = SharedVector<int32_t>(s.rows);
  Buffer counts = Buffer(stat(T), {count});
  Case(DType T, RowShape s, const Buffer& logits, double count = 0, int64_t one_in = 1)
      : T(T), s(s), count(count), one_in(one_in), logits(logits) {
    for (int64_t r = 0; r < s.rows; ++r) ids[r] = r % one_in == 0 ? int32_t((r * 7) % s.cols) : -1;
  }
  CBuf targets() const { return {ids.data(), DType::I32}; }
  CBuf given() const { return count != 0 ? counts.in() : CBuf{}; }
  double divisor() const { return count != 0 ? counts.values()[0] : double((s.rows + one_in - 1) / one_in); }
};

void expect_loss(const Case& c) {
  const std::vector<double> x = c.logits.values();
  Expected loss{"loss", {stat(c.T)}, {0}, {0}}, lse{"lse", {stat(c.T)}, {}};
  for (int64_t r = 0; r < c.s.rows; ++r) {
    const double *row = &x[r * c.s.cols], max = *std::max_element(row, row + c.s.cols);
    double sum = 0;
    for (int64_t k = 0; k < c.s.cols; ++k) sum += std::exp(row[k] - max);
    lse.value.push_back(max + std::log(sum));
    lse.error.push_back(double(c.s.cols) + 16 + 2 * std::abs(max));
    if (c.ids[r] < 0) continue;
    const double value = lse.value[r] - row[c.ids[r]];
    loss.value[0] += value / c.divisor();
    loss.error[0] += (lse.error[r] + 16 * std::abs(value)) / c.divisor();
  }
  const TestedCall fwd{"cross_entropy_fwd",
                       {loss, lse},
                       [&](const Ctx& ctx, const std::vector<Out>& out) {
                         table().cross_entropy_fwd(ctx, c.s, c.logits.in(), c.targets(), c.given(), out[0],
                                                   out[1]);
                       },
                       cost::cross_entropy_fwd(c.s, c.T)};
  const bool every_way = c.s.rows == 33;  // a shape with two rows per partition, and fast
  ASSERT_NO_FATAL_FAILURE(expect_contract(fwd, every_way ? all_ways(fwd.outputs) : some_ways(fwd.outputs)));
}

void expect_gradient(Case c) {
  const Buffer lse(stat(c.T), std::vector<double>(c.s.rows, 4.1)), dloss(stat(c.T), {3.7});
  const std::vector<double> x = c.logits.values();
  const double factor = dloss.values()[0] / c.divisor(), shift = lse.values()[0];
  Expected dx{"logits", {c.T}, {}};
  for (int64_t i = 0; i < c.s.rows * c.s.cols; ++i) {
    const int32_t target = c.ids[i / c.s.cols];
    const double p = std::exp(x[i] - shift);  // by the given lse, even if it is not that of the row
    const double d = target < 0 ? 0 : factor * (p - (target == i % c.s.cols));
    dx.value.push_back(d);
    dx.error.push_back(target < 0 ? 0 : factor * p * (8 + std::abs(x[i] - shift)) + 4 * std::abs(d));
  }
  TestCtx ctx;
  const OpenMpThreads three(3);
  table().cross_entropy_bwd_inplace(ctx, c.s, c.targets(), c.given(), lse.in(), dloss.in(),
                                    c.logits.out(Write::Set));
  ASSERT_NO_FATAL_FAILURE(
      expect_written("cross_entropy_bwd_inplace", dx, c.T, Write::Set, {}, c.logits.values()));
}

TEST_P(L02_Softmax, CrossEntropyAndItsGradientInPlace) {
  std::vector<RowShape> shapes = softmax_shapes();
  shapes.front() = {257, 5};  // instead of no rows, which have no mean; more rows than threads of a block
  for (const DType T : float_types())
    for (const RowShape s : shapes) {
      for (const Buffer& x : {Buffer::random(T, s.rows * s.cols, 1, 5), rising(T, s)}) expect_loss({T, s, x});
      expect_gradient({T, s, Buffer::random(T, s.rows * s.cols, 1, 3)});
    }
}
TEST_P(L07_CrossEntropy, OfTargetsThatCount) {
  for (const DType T : float_types())
    for (const RowShape s : {RowShape{1, 1}, {7, 5}, {33, 257}, {257, 3}, {1025, 2}})
      for (const auto& [count, one_in] :
           {std::pair(0.0, int64_t(1)), {0.0, 3}, {12.5, 3}, {1.0, 2}, {100.0, 1}, {40.0, 2000}}) {
        const Case c(T, s, Buffer::random(T, s.rows * s.cols, 1, 3), count, one_in);
        expect_loss(c), expect_gradient(c);
      }
}

// NaN as in PyTorch; with a count, the loss is 0.
TEST_P(L07_CrossEntropy, WhereNoTargetCountsTheMeanIsNotANumber) {
  const RowShape s{3, 4};
  const Buffer x = Buffer::random(DType::F32, 12, 1), five(DType::F32, {5});
  const SharedVector<int32_t> none(3, -1);
  const CBuf targets{none.data(), DType::I32};
  for (const bool given : {false, true}) {
    Buffer loss(DType::F32, {7}), lse = Buffer::zeros(DType::F32, 3), logits = x;
    TestCtx ctx(cost::cross_entropy_fwd(s, DType::F32));
    const CBuf count = given ? five.in() : CBuf{};
    table().cross_entropy_fwd(ctx, s, x.in(), targets, count, loss.out(Write::Set), lse.out(Write::Set));
    EXPECT_EQ(std::isnan(loss.values()[0]), !given);
    if (given) {
      EXPECT_EQ(loss.values()[0], 0);
    }
    table().cross_entropy_bwd_inplace(ctx, s, targets, count, lse.in(), five.in(), logits.out(Write::Set));
    EXPECT_EQ(logits.values(), std::vector<double>(12, 0.0));
  }
}

// The mean of equal losses is their value, for any number of rows.
TEST_P(L02_Softmax, CrossEntropyOfManyRowsIsTheirMean) {
  const RowShape s{turn.table == &cpu_backend() ? 300'000 : 3'000, 2};
  const Case c(DType::F32, s, Buffer(DType::F32, std::vector<double>(s.rows * s.cols, 0.3)));
  Buffer lse = Buffer::zeros(DType::F32, s.rows), loss = Buffer::zeros(DType::F32, 1);
  TestCtx ctx(cost::cross_entropy_fwd(s, DType::F32));
  table().cross_entropy_fwd(ctx, s, c.logits.in(), c.targets(), {}, loss.out(Write::Set),
                            lse.out(Write::Set));
  EXPECT_NEAR(loss.values()[0], std::log(2.0), 1e-7);
}

TEST_P(L02_Softmax, TargetsAndIdsOutOfRangeAreNamed) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints the message and then does no more work for this process";
  Buffer x = Buffer::random(DType::F32, 6, 1), loss = Buffer::zeros(DType::F32, 1),
         lse = Buffer::zeros(DType::F32, 2);
  TestCtx ctx(Cost{.scratch = 64});
  const RowShape s{2, 3};
  for (const int32_t bad : {-1, -2, 3}) {
    const int32_t ids[] = {0, bad};
    const CBuf in{ids, DType::I32};
    const Out y = x.out(Write::Set);
    const std::function<void()> calls[] = {
        [&] { table().cross_entropy_fwd(ctx, s, x.in(), in, {}, loss.out(Write::Set), lse.out(Write::Set)); },
        [&] { table().cross_entropy_bwd_inplace(ctx, s, in, {}, lse.in(), loss.in(), y); },
        [&] { table().embedding_fwd(ctx, s, 3, x.in(), in, y); },
        [&] { table().embedding_bwd(ctx, s, 3, in, x.in(), y); }};
    for (const auto& call : calls) try {
        if (bad == -1 && &call < calls + 2) continue;  // a target that does not count
        call();
        ADD_FAILURE() << bad << " of 3 was accepted by call " << &call - calls;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("row 1"), std::string::npos) << e.what();
      }
  }
}

TEST(L02_KernelsOnCpu, VectorFunctionsAreWithinTheirBounds) {
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
