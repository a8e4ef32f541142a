// Shared by tests of optimizers: gradients that do not come from a backward pass.
#pragma once
#include "src/core/rng.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"

namespace gradus {

template <class T>
void set_gradient(Parameter& p, const std::vector<T>& values) {
  p.leaf.grad = from_host(p.value.device(), values, p.value.shape(), p.precision.gradient, Kind::Gradient,
                          p.name + ".grad");
  p.leaf.written = true;
}

inline std::vector<double> normal(int64_t n, uint64_t stream, double size = 1) {
  Rng rng(23, stream);
  std::vector<double> values(n);
  for (double& v : values) v = size * rng.normal();
  return values;
}

}  // namespace gradus
