// The kernels that BERT and GPT-NeoX add: exact GELU and rotary positions, against formulas in fp64.
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L04_Kernels);

double gelu_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_erf_slope(double x) {
  return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
}
TEST_P(L04_Kernels, GeluErf) {
  expect_elementwise({"gelu_erf_fwd",
                      [](const Ctx& c, int64_t n, CBuf a, CBuf, Out y) { table().gelu_erf_fwd(c, n, a, y); },
                      [](double a, double) { return gelu_erf(a); }, 8});
  expect_elementwise(
      {"gelu_erf_bwd", table().gelu_erf_bwd, [](double x, double dy) { return dy * gelu_erf_slope(x); }, 16});
}

// Every element by its own formula: the pairs, the angles, and what does not turn.
void expect_rotary(const RotaryShape& s, DType t) {
  const int64_t C = s.H * s.D, h = s.dims / 2, n = s.B * s.T * 3 * C;
  const Buffer x = Buffer::random(t, n, 1);
  const std::vector<double> v = x.values();
  Expected y{"y", {t}, v, std::vector<double>(n, 0.0)};
  // the angle itself is rounded in fp64, and as many times as the position is large
  const double roundings = t == DType::F64 ? double(3 + 2 * (s.first + s.T)) : 3;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = i % (3 * C), d = c % s.D;
    if (c >= 2 * C || d >= s.dims) continue;
    const double angle = double(s.first + i / (3 * C) % s.T) * std::pow(10000, -double(d % h) / double(h));
    const double partner = d < h ? -v[i + h] : v[i - h], sine = std::sin(s.inverse ? -angle : angle);
    y.value[i] = v[i] * std::cos(angle) + partner * sine;
    y.error[i] = roundings * (std::abs(v[i]) + std::abs(partner));
  }
  const TestedCall call{
      "rotary",
      {y},
      [&](const Ctx& c, const std::vector<Out>& out) { table().rotary(c, s, x.in(), out[0]); },
      cost::rotary(s, t)};
  DirtyCtx ctx(call.cost);
  ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs), ctx));
}
// A GPU's block has 256 threads for the 3C columns of a token, and 1024 elements of the table of angles.
TEST_P(L04_Kernels, Rotary) {
  for (const DType t : float_types())
    for (const bool inverse : {false, true}) {
      expect_rotary({.B = 2, .T = 5, .H = 3, .KV = 3, .D = 6, .dims = 4, .first = 2, .inverse = inverse}, t);
      expect_rotary({.B = 3, .T = 1, .H = 1, .KV = 1, .D = 90, .dims = 88, .inverse = inverse}, t);
      expect_rotary({.B = 2, .T = 33, .H = 2, .KV = 2, .D = 64, .dims = 64, .inverse = inverse}, t);
      expect_rotary({.B = 2, .T = 3, .H = 2, .KV = 2, .D = 5, .dims = 0, .inverse = inverse}, t);
      expect_rotary({.B = 1, .T = 2049, .H = 1, .KV = 1, .D = 4, .dims = 4, .inverse = inverse},
                    t);  // large angles
      expect_rotary({.B = 0, .T = 3, .H = 5, .KV = 5, .D = 2, .dims = 2, .inverse = inverse}, t);
      expect_rotary({.B = 3, .T = 1, .H = 2, .KV = 2, .D = 10, .dims = 6, .first = 2047, .inverse = inverse},
                    t);
    }
  TestCtx ctx;
  const Buffer x = Buffer::random(DType::F32, 18, 1);
  Buffer y = Buffer::zeros(DType::F32, 18);
  for (const int64_t dims : {-2, 3, 8})
    EXPECT_THROW(table().rotary(ctx, {1, 1, 1, 1, 6, dims}, x.in(), y.out(Write::Set)), Error) << dims;
  EXPECT_THROW(table().rotary(ctx, {1, 1, 1, 1, 6, 2, -1}, x.in(), y.out(Write::Set)), Error);
}

}  // namespace
}  // namespace gradus
