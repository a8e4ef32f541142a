// The parts of lesson 02 around the training loop: the data, the picture, and the gradient check of a whole
// network.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/tensor/tensor.h"
#include "src/train/report.h"

namespace gradus {

struct Spirals {  // point i belongs to spiral i % 2
  Spirals(int64_t points, uint64_t seed);
  std::vector<float> x;        // (points, 2)
  std::vector<int32_t> label;  // (points)
};

// Draws the probability of spiral 1 over the plane, and the points. `logits` maps points to logits, both
// (n, 2).
void draw_boundary(const std::function<Tensor(const Tensor&)>& logits, const Spirals& data,
                   const std::string& path);

// Compares every gradient of a small network (linear layers, tanh, cross-entropy) with finite differences,
// after multiplying the gradient of one input by `mutant`. Returns the largest error / allowed error; the
// check passes below 1.
double mlp_gradcheck(double mutant);

// The results of a run with R points and hidden width H, and the lesson's checks.
struct MlpRun {
  int64_t forward_flops, backward_flops;  // per step
  double gradcheck, wrong_gradcheck;      // mlp_gradcheck(1) and mlp_gradcheck(1.01)
  double accuracy;                        // share of the training points that are classified correctly
  double backward_per_forward;            // time
};
void check_run(const MlpRun& m, int64_t R, int64_t H, int64_t steps, Report& report);

}  // namespace gradus
