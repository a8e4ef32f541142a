// A matrix product to be computed, and the judge of what comes out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/emu/traffic.h"
#include "src/train/report.h"

namespace gradus {

struct Problem {
  Problem(int64_t n, uint64_t seed);  // n x n numbers between -1 and 1, all of which bf16 has
  double gflop() const { return 2e-9 * double(n) * double(n) * double(n); }
  // The largest error in three columns of C, as a share of what rounding allows. NaN if C has one.
  double worst_error(const std::vector<float>& c) const;

  int64_t n;
  std::vector<float> a, b;
  std::vector<bf16> a16, b16;    // the same numbers
  std::vector<double> expected;  // C's first, middle and last column in fp64, (n, 3)
};

// None of these errors is above what is allowed, and none is NaN.
void check_errors(const std::string& name, const std::vector<double>& errors, Report& report);
// What a GPU's rung moved is what was predicted.
void check_traffic(const std::string& name, const emu::Traffic& counted, const emu::Traffic& predicted,
                   Report& report);

}  // namespace gradus
