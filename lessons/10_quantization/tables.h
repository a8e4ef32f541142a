// What lesson 10 measures of its formats, and what it checks of that.
#pragma once
#include <string>
#include <vector>

#include "lessons/10_quantization/evaluate.h"
#include "lessons/10_quantization/formats.h"
#include "src/train/report.h"

namespace gradus {

// Of NF4: the largest difference of its values, and the bytes of so many numbers.
void check_nf4(double difference, int64_t bytes, int64_t numbers, Report& report);

// What a format does to normally distributed numbers, to the same with one that is 100, and to the weights of
// the trained model.
struct FormatDamage {
  std::string format;
  Damage normal, outlier, weights;
  int64_t predicted;  // bytes of the first
};
std::vector<FormatDamage> measure_damage(int64_t numbers, uint64_t seed, const std::vector<float>& weights);
void damage_table(const std::vector<FormatDamage>& all, int64_t numbers, size_t weights, Report& report);

// The bounds on held-out losses are meant for a model that was trained for so many steps; others are not
// checked.
constexpr int64_t kWholeRun = 1500;
void loss_table(const std::vector<Quality>& all, int64_t parameters, int64_t steps, Report& report);

}  // namespace gradus
