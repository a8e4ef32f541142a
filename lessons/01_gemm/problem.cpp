#include "lessons/01_gemm/problem.h"

#include <algorithm>
#include <cmath>

#include "src/core/rng.h"

namespace gradus {

Problem::Problem(int64_t n, uint64_t seed)
    : n(n), a(n * n), b(n * n), a16(n * n), b16(n * n), expected(n * 3) {
  Rng rng(seed, uint64_t(n));
  for (bf16& x : a16) x = bf16(float(2 * rng.uniform() - 1));
  for (bf16& x : b16) x = bf16(float(2 * rng.uniform() - 1));
  std::copy(a16.begin(), a16.end(), a.begin());
  std::copy(b16.begin(), b16.end(), b.begin());
  const int64_t columns[] = {0, n / 2, n - 1};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t column = 0; column < 3; ++column)
      for (int64_t k = 0; k < n; ++k)
        expected[i * 3 + column] += double(a[i * n + k]) * b[k * n + columns[column]];
}

// The allowed error of a sum of n products is n 2^-24. The factors lie between -1 and 1, so the products have
// both signs, partial sums stay small, and rounding errors partly cancel: correct products stay below this
// bound.
double Problem::worst_error(const std::vector<float>& c) const {
  const int64_t columns[] = {0, n / 2, n - 1};
  double worst = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t column = 0; column < 3; ++column) {
      const double error = std::abs(c[i * n + columns[column]] - expected[i * 3 + column]);
      const double ratio = error / (double(n) * 0x1p-24);
      if (std::isnan(ratio)) return ratio;  // std::max would lose a NaN
      worst = std::max(worst, ratio);
    }
  return worst;
}

void check_errors(const std::string& name, const std::vector<double>& errors, Report& report) {
  double worst = errors.empty() ? NAN : 0;
  for (const double error : errors)
    if (error > worst || std::isnan(error)) worst = error;
  report.check_at_most(name + ": largest error / allowed error", worst, 1);
}

void check_traffic(const std::string& name, const emu::Traffic& counted, const emu::Traffic& predicted,
                   Report& report) {
  report.check_equal(name + ": bytes of global-memory traffic", counted.bytes(), predicted.bytes());
  report.check_equal(name + ": warp loads from global memory", counted.loads.requests,
                     predicted.loads.requests);
  report.check_equal(name + ": thread loads from shared memory", counted.shared_loads,
                     predicted.shared_loads);
}

}  // namespace gradus
