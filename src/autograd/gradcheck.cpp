#include "src/autograd/gradcheck.h"

#include <cmath>

#include "src/core/rng.h"

namespace gradus {

static std::vector<Tensor> make_tensors(const std::vector<GradcheckInput>& inputs) {
  std::vector<Tensor> tensors;
  for (const GradcheckInput& in : inputs)
    tensors.push_back(from_host(current().device, in.values, in.shape, DType::F64, Kind::Data, "gradcheck"));
  return tensors;
}

static double dot(const std::vector<double>& a, const std::vector<double>& b) {
  long double sum = 0;  // the difference of two such sums is divided by 2e-5
  for (size_t i = 0; i < a.size(); ++i) sum += (long double)a[i] * b[i];
  return double(sum);
}

// The tape's gradient of every input for the upstream gradient dy (drawn here, because the shape of y must be
// known).
static std::vector<std::vector<double>> tape_gradients(const GradcheckFunction& f,
                                                       const std::vector<GradcheckInput>& inputs,
                                                       uint64_t seed, std::vector<double>& dy) {
  std::vector<Tensor> x = make_tensors(inputs);
  std::vector<Leaf> leaves(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    if (inputs[i].trains) attach(x[i], leaves[i], "input " + std::to_string(i));
  Tape tape;
  const Tensor y = f(x);
  Rng rng(seed, 0x6C);
  for (int64_t i = 0; i < y.numel(); ++i) dy.push_back(rng.normal());
  tape.backward(y, from_host(current().device, dy, y.shape(), y.dtype(), Kind::Temporary, "dy"));
  std::vector<std::vector<double>> gradients;
  for (size_t i = 0; i < x.size(); ++i) {
    check(leaves[i].grad.defined() == inputs[i].trains, "gradcheck: input ", i,
          inputs[i].trains ? " received no gradient" : " received a gradient, but it does not train");
    gradients.push_back(inputs[i].trains ? to_host<double>(leaves[i].grad) : std::vector<double>());
  }
  return gradients;
}

GradcheckResult gradcheck(const GradcheckFunction& f, std::vector<GradcheckInput> inputs, uint64_t seed,
                          double mutant, int mutated_input) {
  std::vector<double> dy;
  std::vector<std::vector<double>> got = tape_gradients(f, inputs, seed, dy);
  for (double& g : got.at(mutated_input)) g *= mutant;
  NoTape no_tape;
  const double h = 1e-5;
  GradcheckResult result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].trains) continue;
    std::vector<double> expected;
    for (double& value : inputs[i].values) {
      const double x = value;
      value = x + h;
      const double above = dot(to_host<double>(f(make_tensors(inputs))), dy);
      value = x - h;
      const double below = dot(to_host<double>(f(make_tensors(inputs))), dy);
      value = x;
      expected.push_back((above - below) / (2 * h));
    }
    const double rms = std::sqrt(dot(expected, expected) / std::max<size_t>(expected.size(), 1));
    for (size_t e = 0; e < expected.size(); ++e) {
      const double allowed = 1e-6 * (std::abs(expected[e]) + rms) + 1e-10,
                   share = std::abs(got[i][e] - expected[e]) / allowed;
      if (!(share <= result.worst)) {  // also true if a value is not finite
        result.worst = std::isfinite(share) ? share : INFINITY;
        std::ostringstream where;
        where << "input " << i << " " << inputs[i].shape << ", element " << e << ": expected " << expected[e]
              << " (finite difference), got " << got[i][e] << " (tape)";
        result.where = where.str();
      }
    }
  }
  return result;
}

}  // namespace gradus
