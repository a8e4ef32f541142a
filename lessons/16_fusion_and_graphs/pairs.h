// Two operations, separate and fused by hand: bytes moved, time, results.
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
// Two functions with the same inputs and the same result. All inputs require gradients. saved_moves: how many
// numbers fewer the fused one moves, forward and backward together.
struct Pair {
  std::string name;
  std::vector<Shape> shapes;
  std::function<Tensor(const std::vector<Tensor>&)> separate, fused;
  int64_t saved_moves;
};
std::vector<Pair> pairs(const PairSize&);

struct PairRun {
  int64_t moved = 0;     // bytes: the costs of the kernels that ran
  double seconds = NAN;  // forward and backward, median; NaN on meta
  std::vector<double> y, gradients;
};
struct ComparedPair {
  Pair pair;
  PairRun separate, fused;
};
std::vector<ComparedPair> compare_pairs(const Lesson&, const PairSize&);
void report_pairs(const std::vector<ComparedPair>&, const PairSize&, Report&);

}  // namespace gradus
