// The three layers with weights: their parameters and how they are applied.
#pragma once
#include "src/nn/parameter.h"
#include "src/ops/ops.h"

namespace gradus {

struct Linear {  // y = x W^T + b
  Linear(Parameters& p, const std::string& name, int64_t in, int64_t out, const Precision& t = {})
      : weight(p.add(name + ".weight", {out, in}, t)), bias(p.add(name + ".bias", {out}, t)) {}
  Tensor operator()(const Tensor& x) const { return linear(x, weight.value, bias.value); }
  Parameter &weight, &bias;
};

struct LayerNorm {
  LayerNorm(Parameters& p, const std::string& name, int64_t channels, const Precision& t, double eps)
      : gamma(p.add(name + ".weight", {channels}, t)), beta(p.add(name + ".bias", {channels}, t)), eps(eps) {}
  Tensor operator()(const Tensor& x) const { return layernorm(x, gamma.value, beta.value, eps); }
  Parameter &gamma, &beta;
  double eps;
};

struct Embedding {
  Embedding(Parameters& p, const std::string& name, int64_t count, int64_t channels, const Precision& t)
      : table(p.add(name + ".weight", {count, channels}, t)) {}
  Parameter& table;
};

}  // namespace gradus
