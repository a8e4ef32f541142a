// The inputs of a matrix product, and the check of its result.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/emu/traffic.h"
#include "src/train/report.h"

namespace gradus {

struct Problem {
  Problem(int64_t n, uint64_t seed);  // n x n numbers between -1 and 1, all exact in bf16
  double gflop() const { return 2e-9 * double(n) * double(n) * double(n); }
  // The largest error in three columns of C, divided by the allowed error; NaN if one of these is NaN.
  double worst_error(const std::vector<float>& c) const;

  int64_t n;
  std::vector<float> a, b;
  std::vector<bf16> a16, b16;    // the same numbers in bf16
  std::vector<double> expected;  // C's first, middle and last column in fp64, (n, 3)
};

// Check that none of these errors (each divided by the allowed error) is above 1 or NaN, and that the traffic
// of a GPU's rung equals the prediction.
void check_errors(const std::string& name, const std::vector<double>& errors, Report& report);
void check_traffic(const std::string& name, const emu::Traffic& counted, const emu::Traffic& predicted,
                   Report& report);

}  // namespace gradus
