// The kernels that BERT and GPT-NeoX add: exact GELU and rotary positions, against formulas in fp64. Also
// rotary positions as in Llama: of grouped heads, with any base.
#include "tests/kernels/kernel_contract.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L04_Kernels);
ON_EVERY_DEVICE(L21_Rotary);

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

// Every element by its own formula: the pairs, the angles, and the elements that are not rotated.
void expect_rotary(const RotaryShape& s, DType t) {
  const int64_t turned = (s.H + s.KV) * s.D, width = turned + s.KV * s.D, h = s.dims / 2;
  const int64_t n = s.B * s.T * width;
  const Buffer x = Buffer::random(t, n, 1);
  const std::vector<double> v = x.values();
  Expected y{"y", {t}, v, std::vector<double>(n, 0.0)};
  // the angle itself is rounded in fp64, and its error grows with the position
  const double roundings = t == DType::F64 ? double(3 + 2 * (s.first + s.T)) : 3;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = i % width, d = c % s.D;
    if (c >= turned || d >= s.dims) continue;
    const double angle = double(s.first + i / width % s.T) * std::pow(s.base, -double(d % h) / double(h));
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
// A GPU's block has 256 threads for the columns of a token, and 1024 elements of the table of angles.
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

TEST_P(L21_Rotary, OfGroupedHeadsWithAnyBase) {
  for (const DType t : float_types())
    for (const bool inverse : {false, true})
      for (const double base : {1.5, 500'000.0}) {
        const auto of = [&](RotaryShape s) {
          s.base = base, s.inverse = inverse;
          ASSERT_NO_FATAL_FAILURE(expect_rotary(s, t));
        };
        of({.B = 2, .T = 5, .H = 6, .KV = 2, .D = 6, .dims = 4, .first = 3});
        of({.B = 1, .T = 7, .H = 7, .KV = 1, .D = 1, .dims = 0});
        of({.B = 2, .T = 2, .H = 15, .KV = 1, .D = 15, .dims = 14});  // 255 columns, 240 are rotated
        of({.B = 1, .T = 3, .H = 255, .KV = 1, .D = 1, .dims = 0});   // 257
        of({.B = 2, .T = 3, .H = 8, .KV = 2, .D = 32, .dims = 32});
        of({.B = 0, .T = 3, .H = 4, .KV = 2, .D = 2, .dims = 2});
      }
}
// The base of GPT-NeoX is the default.
TEST_P(L21_Rotary, HasTheBase10000UnlessAnotherIsGiven) {
  const RotaryShape s{.B = 1, .T = 9, .H = 2, .KV = 1, .D = 8, .dims = 8};
  RotaryShape given = s, other = s;
  given.base = 10000, other.base = 10001;
  const Buffer x = Buffer::random(DType::F32, 9 * 32, 1);
  TestCtx ctx(cost::rotary(s, DType::F32));
  std::vector<std::vector<double>> got;
  for (const RotaryShape& shape : {s, given, other}) {
    Buffer y = Buffer::zeros(DType::F32, 9 * 32);
    table().rotary(ctx, shape, x.in(), y.out(Write::Set));
    got.push_back(y.values());
  }
  EXPECT_EQ(got[0], got[1]);
  EXPECT_NE(got[0], got[2]);
}
TEST_P(L21_Rotary, RefusesBasesAndHeads) {
  const Buffer x = Buffer::random(DType::F32, 18, 1);
  Buffer y = Buffer::zeros(DType::F32, 18);
  TestCtx ctx;
  const auto call = [&](RotaryShape s) { table().rotary(ctx, s, x.in(), y.out(Write::Set)); };
  for (const double base : {1.0, 0.5, 0.0, -10000.0, double(NAN)})
    expect_refused("rotary: the base is ",
                   [&] { call({.B = 1, .T = 1, .H = 1, .KV = 1, .D = 6, .dims = 2, .base = base}); });
  for (const auto& [H, KV] : {std::pair<int64_t, int64_t>(0, 1), {1, 0}, {3, 2}, {1, 2}, {-2, -1}})
    expect_refused("rotary: " + std::to_string(H) + " heads of queries cannot share " + std::to_string(KV),
                   [&, H = H, KV = KV] { call({.B = 1, .T = 1, .H = H, .KV = KV, .D = 6, .dims = 2}); });
}

}  // namespace
}  // namespace gradus
