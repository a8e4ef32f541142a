// Element-wise kernels against formulas in fp64, over dtypes, Writes and sizes.
#include "tests/kernels/kernel_contract.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L02_Elementwise);
ON_EVERY_DEVICE(L03_Elementwise);

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TEST_P(L02_Elementwise, Add) {
  expect_elementwise({"add", table().add, [](double a, double b) { return a + b; }});
}
TEST_P(L02_Elementwise, Multiply) {
  expect_elementwise({"multiply", table().multiply, [](double a, double b) { return a * b; }});
}
TEST_P(L02_Elementwise, Scale) {
  expect_elementwise({"scale",
                      [](const Ctx& c, int64_t n, CBuf a, CBuf, Out y) { table().scale(c, n, a, y, -1.3f); },
                      [](double a, double) { return double(-1.3f) * a; }});
}
TEST_P(L02_Elementwise, Tanh) {
  RecordProperty("exercise", "02.3");
  expect_elementwise({"tanh_fwd",
                      [](const Ctx& c, int64_t n, CBuf a, CBuf, Out y) { table().tanh_fwd(c, n, a, y); },
                      [](double a, double) { return std::tanh(a); }, 4});
  expect_elementwise(
      {"tanh_bwd", table().tanh_bwd, [](double y, double dy) { return dy * (1 - y * y); }, 16});
  const Buffer y(DType::F32, {0.5}), dy(DType::F32, {2});
  Buffer out = Buffer::zeros(DType::F32, 1);
  TestCtx ctx;
  table().tanh_bwd(ctx, 1, y.in(), dy.in(), out.out(Write::Set));
  const double dx = out.values()[0];
  EXPECT_NEAR(dx, 1.5, 1e-6) << "dx for y = 0.5 and dy = 2"
                             << usual_mistake(
                                    {{dx == 2.5, "your slope is above 1, but that of tanh is at most 1"},
                                     {dx == 0.75, "this is the slope; the chain rule's dy is missing"},
                                     {dx == 0.5, "this is the slope of the sigmoid"}});
}
TEST_P(L03_Elementwise, Gelu) {
  expect_elementwise({"gelu_fwd",
                      [](const Ctx& c, int64_t n, CBuf a, CBuf, Out y) { table().gelu_fwd(c, n, a, y); },
                      [](double a, double) { return gelu(a); }, 16});
  expect_elementwise(
      {"gelu_bwd", table().gelu_bwd, [](double x, double dy) { return dy * gelu_slope(x); }, 64});
}
TEST_P(L02_Elementwise, Fill) {
  expect_elementwise({"fill", [](const Ctx& c, int64_t n, CBuf, CBuf, Out y) { table().fill(c, n, y, -1.3); },
                      [](double, double) { return -1.3; }});
}
TEST_P(L02_Elementwise, CastBetweenAllPairs) {
  for (const DType from : float_types())
    for (const int64_t n : {0, 1, 257, 2049}) {
      const Buffer x = Buffer::random(from, n, 1);
      const TestedCall cast{
          std::string("cast from ") + name_of(from),
          {{"y", float_types(), x.values()}},
          [&](const Ctx& c, const std::vector<Out>& y) { table().cast(c, n, x.in(), y[0]); }};
      expect_contract(cast, all_ways(cast.outputs));
    }
}
// Parts of rows, from longer rows into longer rows: the elements between the parts do not change.
TEST_P(L02_Elementwise, CastOfColumnsBetweenAllPairs) {
  for (const DType from : float_types())
    for (const RowShape s : row_shapes())
      for (const auto& [x_more, y_more] : {std::pair<int64_t, int64_t>(0, 0), {5, 0}, {0, 3}, {1, 2}}) {
        const int64_t x_row = s.cols + x_more, y_row = s.cols + y_more;
        const Buffer x = Buffer::random(from, s.rows * x_row, 1);
        const std::vector<double> values = x.values();
        Expected y{"y", float_types(), std::vector<double>(size_t(s.rows * y_row), kNotWritten)};
        for (int64_t r = 0; r < s.rows; ++r)
          std::copy_n(values.begin() + r * x_row, s.cols, y.value.begin() + r * y_row);
        const TestedCall cast{std::string("cast_columns from ") + name_of(from),
                              {y},
                              [&, row = x_row](const Ctx& c, const std::vector<Out>& out) {
                                table().cast_columns(c, s, row, x.in(), s.cols + y_more, out[0]);
                              }};
        expect_contract(cast, all_ways(cast.outputs));
      }
  TestCtx ctx;  // without columns, nothing is written
  const Buffer x = Buffer::random(DType::F32, 6, 1);
  Buffer y = Buffer::random(DType::F32, 6, 2);
  const std::vector<double> before = y.values();
  table().cast_columns(ctx, {3, 0}, 2, x.in(), 2, y.out(Write::Set));
  EXPECT_EQ(y.values(), before);
}
TEST_P(L02_Elementwise, NanAndInfinityPass) {
  TestCtx ctx;
  const Buffer x(DType::F32, {NAN, INFINITY, -INFINITY});
  Buffer y = Buffer::zeros(DType::F32, 3);
  table().gelu_fwd(ctx, 3, x.in(), y.out(Write::Set));
  EXPECT_TRUE(std::isnan(y.values()[0]) && std::isinf(y.values()[1]));
  table().tanh_fwd(ctx, 3, x.in(), y.out(Write::Set));
  EXPECT_TRUE(std::isnan(y.values()[0]));
  EXPECT_EQ(y.values()[1], 1);
  EXPECT_EQ(y.values()[2], -1);
  table().gelu_erf_fwd(ctx, 3, x.in(), y.out(Write::Set));
  EXPECT_TRUE(std::isnan(y.values()[0]) && y.values()[1] == INFINITY);
  table().scale(ctx, 3, x.in(), y.out(Write::Set), 0);
  for (const double v : y.values()) EXPECT_TRUE(std::isnan(v)) << "0 times NaN or infinity is NaN";
  table().add(ctx, 3, x.in(), x.in(), y.out(Write::Set));
  EXPECT_TRUE(std::isnan(y.values()[0]) && y.values()[1] == INFINITY && y.values()[2] == -INFINITY);
  table().multiply(ctx, 3, x.in(), x.in(), y.out(Write::Set));
  EXPECT_TRUE(std::isnan(y.values()[0]) && y.values()[1] == INFINITY && y.values()[2] == INFINITY);
  table().dropout(ctx, {1, 3}, x.in(), y.out(Write::Set), 1, {});
  EXPECT_EQ(y.values(), std::vector<double>(3, 0))
      << "a dropped element is 0, even if it was NaN or infinity";
}

}  // namespace
}  // namespace gradus
