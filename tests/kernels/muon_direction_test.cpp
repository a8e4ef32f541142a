// Muon's direction against the formula of kernels/entries.inc in fp64.
#include <array>

#include "tests/kernels/kernel_contract.h"
#include "tests/kernels/rejection_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L06_Muon);

constexpr float kMomentum = 0.95f, kClip = 0.7f;

// The places where a reference can be wrong by a factor, to test that the bounds detect it.
using Factors = std::array<double, 4>;
constexpr Factors kRight = {1, 1, 1, 1};

struct Step {
  Expected m{"m", {}, {}}, direction{"direction", {}, {}};
};
// The sum of squares is computed in fp64 (cost.h), so |d| is as exact as the elements of d. Each element has
// three roundings of each of its two terms: of g', of 1 - momentum and of the product; twice, for m and for
// d. kept: d is computed from these m, which the kernel has stored.
Step step_of(const Buffer& gradient, const Buffer& moment, double clip = kClip, const Factors& off = kRight,
             const std::vector<double>* kept = nullptr) {
  const double mu = kMomentum;
  std::vector<double> g = gradient.values(), m = moment.values(), d(g.size()), d_error(g.size());
  Step after;
  double sum = 0, error_sum = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    const double fresh = off[0] * clip * g[i] * (1 - mu), old = off[1] * mu * m[i];
    const double mi = old + fresh, m_error = 4 * (std::abs(old) + std::abs(fresh));
    after.m.value.push_back(mi), after.m.error.push_back(m_error);
    d[i] = off[2] * mu * (kept ? (*kept)[i] : mi) + fresh;
    d_error[i] = m_error + 4 * (std::abs(mu * mi) + std::abs(fresh));
    sum += d[i] * d[i], error_sum += d_error[i] * d_error[i];
  }
  const double norm = std::sqrt(sum), by = std::isnan(norm) ? norm : std::max(off[3] * norm, 1e-7);
  // The norm's error is at most the length of the vector of d's errors (Cauchy and Schwarz) and a few
  // roundings; in fp64 the sum adds its own.
  const double of_sum = moment.type() == DType::F64 ? double(g.size()) / 2 : 0;
  const double norm_error = (std::sqrt(error_sum) + (4 + of_sum) * norm) / by;
  for (size_t i = 0; i < d.size(); ++i) {
    after.direction.value.push_back(d[i] / by);
    after.direction.error.push_back((d_error[i] + std::abs(d[i]) * (norm_error + 4)) / by);
  }
  return after;
}

struct Moved {
  std::vector<double> m, direction;
};
Moved direction_of(const Buffer& grad, const Buffer& m, double clip = kClip) {
  const int64_t n = int64_t(grad.values().size());
  Buffer moved = m, direction = Buffer::random(stat(m.type()), n, 3);
  TestCtx ctx(cost::muon_direction(n, grad.type(), m.type(), direction.type()));
  ctx.scalars().clip_factor = float(clip);
  table().muon_direction(ctx, n, grad.in(), moved.out(Write::Set), direction.out(Write::Set), kMomentum);
  return {moved.values(), direction.values()};
}

// Every direction that a caller may want: in each dtype, Set and Add; and none, so that only m is updated. If
// m is rounded when it is stored, d may be that of the exact or of the stored m. way: the way that is tested
// in addition to fp32 if calls are slow.
void expect_direction(const Buffer& grad, const Buffer& m, double clip = kClip, size_t way = 3) {
  const int64_t n = int64_t(grad.values().size());
  Step after = step_of(grad, m, clip);
  if (size_of(m.type()) == 2) {
    const Moved moved = direction_of(grad, m, clip);
    const auto expect = [&] {
      expect_written("", after.direction, DType::F32, Write::Set, {}, moved.direction);
    };
    if (is_rejected(expect)) after.direction = step_of(grad, m, clip, kRight, &moved.m).direction;
  }
  after.direction.types = {DType::F32, DType::BF16, DType::F16};
  if (m.type() == DType::F64) after.direction.types = {DType::F64};
  const std::string op = std::string("muon_direction of a gradient in ") + name_of(grad.type()) +
                         " and m in " + name_of(m.type());
  const auto call = [&](const Ctx& ctx, const std::vector<Out>& out) {
    Buffer moved = m;
    ctx.update->clip_factor = float(clip);
    table().muon_direction(ctx, n, grad.in(), moved.out(Write::Set), out[0], kMomentum);
    expect_written(op, after.m, m.type(), Write::Set, {}, moved.values());
  };
  const TestedCall k{op, {after.direction}, call, cost::muon_direction(n, grad.type(), m.type(), DType::F32)};
  const std::vector<Way> all = all_ways(k.outputs), few{{1}, all[way % all.size()]};
  expect_contract(k, turn.table == &cpu_backend() ? all : few);
}

// Sizes just below and above the elements of a GPU's block, at a time and in all, and of a CPU's thread.
void expect_directions(const std::vector<DType>& of_m) {
  const size_t every = turn.table == &cpu_backend() ? 1 : 5 * of_m.size();
  size_t k = 0;
  for (const DType m : of_m)
    for (const DType grad : m == DType::F64 ? of_m : std::vector{DType::F32, DType::BF16, DType::F16})
      for (const int64_t n : {0, 1, 7, 255, 257, 1023, 1025, 4095, 4097, 16'385, 70'001})
        if (k++ % every == 0) {
          const Buffer g = Buffer::random(grad, n, 1), old = Buffer::random(m, n, 2, 0.3);
          ASSERT_NO_FATAL_FAILURE(expect_direction(g, old, kClip, k / every)) << n << " elements";
        }
}
TEST_P(L06_Muon, TheDirectionIsTheFormula) { expect_directions({DType::F32}); }
TEST_P(L06_Muon, TheDirectionFromAStateIn16Bits) { expect_directions({DType::BF16, DType::F16}); }
TEST_P(L06_Muon, TheDirectionInFp64) {
  if (turn.table == &cpu_backend()) expect_directions({DType::F64});
}

// |d| on both sides of 1e-7, far below it, and 0.
TEST_P(L06_Muon, ADirectionIsNoLongerThanOneAndSmallOnesStaySmall) {
  for (const double size : {0.0, 1e-30, 1e-12, 1e-9, 0.9e-7, 1.1e-7, 1e-6, 1e-3})
    for (const int64_t n : {257, 1}) {
      if (n == 1 && turn.table != &cpu_backend()) continue;
      const double each = size / std::sqrt(double(n));
      const Buffer grad(DType::F32, std::vector<double>(n, each)), m = grad;
      ASSERT_NO_FATAL_FAILURE(expect_direction(grad, m, 1)) << size;
    }
  const Buffer zeros = Buffer::zeros(DType::BF16, 5);
  EXPECT_EQ(direction_of(zeros, zeros).direction, std::vector<double>(5, 0));
}

// The squares overflow fp32, and their sum does so earlier; or all squares are below the range of fp32.
TEST_P(L06_Muon, TheNormOfLargeNumbers) {
  for (const double size : {1e20, 1e30, 1e-21})
    for (const DType grad : {DType::F32, DType::BF16})
      for (const int64_t n : {1025, 7}) {
        if (n == 7 && turn.table != &cpu_backend()) continue;
        const Buffer m = Buffer::random(DType::F32, n, 2, size);
        ASSERT_NO_FATAL_FAILURE(expect_direction(Buffer::random(grad, n, 1, size), m, 0.5)) << size;
      }
}

TEST_P(L06_Muon, ANanIsNotHidden) {
  for (const bool in_gradient : {true, false})
    for (const int64_t n : {1, 5000}) {
      std::vector<double> numbers(n, 1), with_nan = numbers;
      with_nan[n / 2] = NAN;
      const Buffer grad(DType::F32, in_gradient ? with_nan : numbers);
      const auto [m, d] = direction_of(grad, Buffer(DType::F32, in_gradient ? numbers : with_nan));
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::isnan(m[i]), i == n / 2) << i;
        ASSERT_TRUE(std::isnan(d[i])) << "the norm is NaN, but element " << i << " is " << d[i];
      }
    }
}

TEST_P(L06_Muon, ReferencesThatAreOnePercentOffAreRejected) {
  const Buffer grad = Buffer::random(DType::BF16, 1025, 1, 3), old = Buffer::random(DType::F32, 1025, 2, 0.3);
  const Moved moved = direction_of(grad, old);
  for (int place = -1; place < 4; ++place) {
    Factors off = kRight;
    if (place >= 0) off[size_t(place)] = 1.01;
    const Step after = step_of(grad, old, kClip, off);
    const auto expect = [&](const Expected& e, const std::vector<double>& got) {
      return is_rejected([&] { expect_written("muon_direction", e, DType::F32, Write::Set, {}, got); });
    };
    EXPECT_EQ(expect(after.m, moved.m), place == 0 || place == 1) << place;
    EXPECT_EQ(expect(after.direction, moved.direction), place >= 0) << place;
  }
}

TEST_P(L06_Muon, OnlyFloatsAreTaken) {
  Buffer x = Buffer::zeros(DType::F64, 8), m = x, d = x;  // large enough for any dtype
  TestCtx ctx(cost::muon_direction(2, DType::F32, DType::F32, DType::F32));
  for (const DType t : {DType::I64, DType::I32, DType::I8, DType::U8, DType::F64})
    for (int which = 0; which < 3; ++which)
      for (const int64_t n : {0, 2}) {
        if (t == DType::F64 && turn.table == &cpu_backend()) continue;
        const auto type = [&](int i) { return i == which ? t : DType::F32; };
        const Out to_m{m.out(Write::Set).p, type(1)}, to_d{d.out(Write::Set).p, type(2)};
        ASSERT_THROW(table().muon_direction(ctx, n, {x.in().p, type(0)}, to_m, to_d, kMomentum), Error)
            << name_of(t) << " as buffer " << which << " of " << n << " elements";
      }
}

}  // namespace
}  // namespace gradus
