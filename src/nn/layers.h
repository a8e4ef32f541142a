// The three layers with weights: their parameters and how they are applied.
#pragma once
#include <optional>

#include "src/nn/parameter.h"
#include "src/ops/ops.h"

namespace gradus {

// What LoRA adds to a linear layer (Hu et al. 2021, sec. 4.1): alpha/r x A^T B^T, A (r, in), B (out, r). See
// lora.h.
struct LoraAdapter {
  Parameter &a, &b;
  double alpha, dropout;  // dropout: of x
  double scale() const { return alpha / double(a.value.shape()[0]); }
  Tensor operator()(const Tensor& x) const;
};

struct Linear {  // y = x W^T + b, and what an adapter adds
  Linear(Parameters& p, const std::string& name, int64_t in, int64_t out, const Precision& t = {})
      : name(name), weight(p.add(name + ".weight", {out, in}, t)), bias(p.add(name + ".bias", {out}, t)) {}
  Tensor operator()(const Tensor& x) const;
  std::string name;
  Parameter &weight, &bias;
  std::optional<LoraAdapter> lora = {};
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
