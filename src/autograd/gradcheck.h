// Gradient checking: the tape's gradients against central finite differences, in fp64, over every element.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/autograd/tape.h"

namespace gradus {

struct GradcheckResult {
  double worst = 0;   // largest error / allowed error; the check passes below 1
  std::string where;  // input, element, expected (finite difference) and got (tape) at the worst place
  bool passed() const { return worst < 1; }
};

// f computes a tensor from `inputs`, which are fp64 values with their shapes. Its output is multiplied by
// random upstream gradients and summed; dL/dx of every element is compared with (L(x+h) - L(x-h)) / 2h.
// Allowed error: 1e-6 of (|expected| + root mean square of that input's gradient); differences in fp64 with h
// = 1e-5 have an error of about h^2 f''' + 1e-16/h, a hundred times less. `mutant` multiplies the tape's
// gradient of input `mutated_input`: 1.01 there must fail, or the check proves nothing.
struct GradcheckInput {
  Shape shape;
  std::vector<double> values;
  bool trains = true;  // false: it gets no gradient, and none is compared
};
using GradcheckFunction = std::function<Tensor(const std::vector<Tensor>&)>;
GradcheckResult gradcheck(const GradcheckFunction& f, std::vector<GradcheckInput> inputs, uint64_t seed = 1,
                          double mutant = 1, int mutated_input = 0);

}  // namespace gradus
