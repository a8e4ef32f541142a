// The tables and checks of lesson 10.
#pragma once
#include <string>
#include <vector>

#include "lessons/10_quantization/evaluate.h"
#include "lessons/10_quantization/formats.h"
#include "src/train/report.h"

namespace gradus {

// NF4: the largest difference between its published and its computed values; the bytes of that many numbers.
void check_nf4(double difference, int64_t bytes, int64_t numbers, Report& report);

// A format on normally distributed numbers, on the same numbers with one of them replaced by 100, and on the
// weights of the trained model.
struct FormatErrors {
  std::string format;
  Measured normal, outlier, weights;
  int64_t predicted;  // bytes of the normal numbers
};
std::vector<FormatErrors> measure_errors(int64_t numbers, uint64_t seed, const std::vector<float>& weights);
void error_table(const std::vector<FormatErrors>& all, int64_t numbers, size_t weights, Report& report);

// The share of the numbers that each code of NF4 has.
void share_table(const std::vector<double>& shares, int64_t numbers, Report& report);
// The errors of absmax in blocks: by quantize_block, and by the kernel.
void check_plain(double plain, double kernel, Report& report);

// The bounds on held-out losses are for a model trained for this number of steps; after a different number
// they are not checked.
constexpr int64_t kWholeRun = 1500;
void loss_table(const std::vector<Quality>& all, int64_t parameters, int64_t steps, Report& report);

}  // namespace gradus
