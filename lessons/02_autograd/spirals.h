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

// The probability of spiral 1 over the plane, as a picture. `logits` maps points (n, 2) to (n, 2).
void draw_boundary(const std::function<Tensor(const Tensor&)>& logits, const Spirals& data,
                   const std::string& path);

// Checks every gradient of a small network of linear layers, tanh and cross-entropy against finite
// differences, with one input's gradient multiplied by `mutant`. The share of the allowed error that is used;
// below 1 passes.
double mlp_gradcheck(double mutant);

// What came out, of R points and a network of H hidden numbers, and the lesson's checks of it.
struct MlpRun {
  int64_t forward_flops, backward_flops;  // of a step
  double gradcheck, wrong_gradcheck;      // mlp_gradcheck(1) and mlp_gradcheck(1.01)
  double correct;                         // the share of points on the right side
};
void check_run(const MlpRun& m, int64_t R, int64_t H, int64_t steps, Report& report);

}  // namespace gradus
