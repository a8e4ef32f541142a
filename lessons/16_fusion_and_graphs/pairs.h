// The fused operations beside the two that each is made of: what they move, how long they take, what comes
// out.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "src/ops/ops.h"
#include "src/train/lesson.h"

namespace gradus {

struct PairSize {
  int64_t rows, channels;
};
// Two ways to the same, as functions of the same inputs, which all want gradients; and how many numbers the
// fused one moves less, forward and backward.
struct Pair {
  std::string name;
  std::vector<Shape> shapes;
  std::function<Tensor(const std::vector<Tensor>&)> apart, fused;
  int64_t saved_moves;
};
std::vector<Pair> pairs(const PairSize&);

struct PairRun {
  int64_t moved = 0;     // bytes, by the costs of the kernels that ran
  double seconds = NAN;  // forward and backward, the median; NaN on meta
  std::vector<double> y, gradients;
};
struct ComparedPair {
  Pair pair;
  PairRun apart, fused;
};
std::vector<ComparedPair> compare_pairs(const Lesson&, const PairSize&);
void report_pairs(const std::vector<ComparedPair>&, const PairSize&, Report&);

}  // namespace gradus
