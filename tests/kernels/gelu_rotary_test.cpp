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
void rotary_of(const RotaryShape& s) {
  const int64_t C = s.H * s.D, h = s.dims / 2, n = s.B * s.T * 3 * C;
  for (const DType t : float_types()) {
    const Buffer x = Buffer::random(t, n, 1);
    Buffer y = Buffer::random(t, n, 2);
    TestCtx ctx(cost::rotary(s, t));
    table().rotary(ctx, s, x.in(), y.out(Write::Set));
    const std::vector<double> vx = x.values();
    std::vector<double> expected = vx, sizes(n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t c = i % (3 * C), d = c % s.D, pair = d % std::max<int64_t>(h, 1);
      if (c >= 2 * C || d >= s.dims) continue;
      const double angle = double(s.first + i / (3 * C) % s.T) / std::pow(10000, double(pair) / double(h));
      const double partner = d < h ? -vx[i + h] : vx[i - h];
      expected[i] = vx[i] * std::cos(angle) + (s.inverse ? -1 : 1) * partner * std::sin(angle);
      sizes[i] = std::abs(vx[i]) + std::abs(partner);
    }
    const double eps = epsilon_of(t == DType::F64 ? DType::F64 : DType::F32);
    expect_close(std::string("rotary ") + name_of(t), y.values(), expected, [&](int64_t i) {
      // in fp64 the angle itself is rounded, and as many of its roundings as positions are what it is off by
      const double angle = t == DType::F64 ? double(s.first + s.T) : 0;
      return epsilon_of(t) * std::abs(expected[i]) + (3 + 2 * angle) * eps * sizes[i] +
             (t == DType::F16 ? 0x1p-25 : 0);
    });
    expect_add_is_set_plus("rotary", t, n, [&](Out o) { table().rotary(ctx, s, x.in(), o); });
  }
}
TEST_P(L04_Kernels, Rotary) {
  for (const bool inverse : {false, true}) {
    rotary_of({.B = 2, .T = 7, .H = 3, .D = 10, .dims = 6, .inverse = inverse});
    rotary_of({.B = 1, .T = 2049, .H = 1, .D = 4, .dims = 4, .inverse = inverse});  // large angles
    rotary_of({.B = 3, .T = 1, .H = 2, .D = 51, .dims = 50, .inverse = inverse});
    rotary_of({.B = 1, .T = 3, .H = 5, .D = 1, .dims = 0, .inverse = inverse});
    rotary_of({.B = 0, .T = 3, .H = 5, .D = 2, .dims = 2, .inverse = inverse});
    rotary_of({.B = 3, .T = 1, .H = 2, .D = 10, .dims = 6, .first = 2047, .inverse = inverse});
    rotary_of({.B = 2, .T = 5, .H = 1, .D = 7, .dims = 4, .first = 3, .inverse = inverse});
  }
  TestCtx ctx;
  const Buffer x = Buffer::random(DType::F32, 18, 1);
  Buffer y = Buffer::zeros(DType::F32, 18);
  for (const int64_t dims : {-2, 3, 8})
    EXPECT_THROW(table().rotary(ctx, {1, 1, 1, 6, dims}, x.in(), y.out(Write::Set)), Error) << dims;
  EXPECT_THROW(table().rotary(ctx, {1, 1, 1, 6, 2, -1}, x.in(), y.out(Write::Set)), Error);
}

}  // namespace
}  // namespace gradus
