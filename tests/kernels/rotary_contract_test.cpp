// Rotary positions against kernels.h: every dtype with Set and Add, sizes on both sides of every block.
#include "tests/kernels/contract_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L04_RotaryContract);

void expect_rotary(TestCtx& ctx, const RotaryShape& s, DType t, Wish wish) {
  const int64_t C = s.H * s.D, h = s.dims / 2, n = s.B * s.T * 3 * C;
  const Buffer x = Buffer::random(t, n, 1);
  const std::vector<double> v = x.values();
  Computed want(n);
  // the angle itself is rounded in fp64, and as many times as the position is large
  const double eps = (t == DType::F64 ? double(3 + 2 * (s.first + s.T)) : 3) * epsilon_of_sums(t);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = i % (3 * C), d = c % s.D;
    if (c >= 2 * C || d >= s.dims) {
      want.add(i, v[i], 0);
      continue;
    }
    const double angle = double(s.first + i / (3 * C) % s.T) * std::pow(10000, -double(d % h) / double(h));
    const double partner = d < h ? -v[i + h] : v[i - h], sine = std::sin(s.inverse ? -angle : angle);
    want.add(i, v[i] * std::cos(angle) + partner * sine, eps * (std::abs(v[i]) + std::abs(partner)));
  }
  Output y(t, wish, want);
  table().rotary(ctx, s, x.in(), y.out());
  y.expect("rotary");
}
// A GPU's block has 256 threads for the 3C columns of a token, and 1024 elements of the table of angles.
TEST_P(L04_RotaryContract, EveryDtypeAndWriteAndSizesBeyondABlock) {
  DirtyCtx ctx;
  for (const DType t : float_types())
    for (const Wish wish : kWishes)
      for (const bool inverse : {false, true}) {
        expect_rotary(ctx, {.B = 2, .T = 5, .H = 3, .D = 6, .dims = 4, .first = 2, .inverse = inverse}, t,
                      wish);
        expect_rotary(ctx, {.B = 3, .T = 1, .H = 1, .D = 90, .dims = 88, .inverse = inverse}, t, wish);
        expect_rotary(ctx, {.B = 2, .T = 33, .H = 2, .D = 64, .dims = 64, .inverse = inverse}, t, wish);
        expect_rotary(ctx, {.B = 2, .T = 3, .H = 2, .D = 5, .dims = 0, .inverse = inverse}, t, wish);
      }
}

}  // namespace
}  // namespace gradus
