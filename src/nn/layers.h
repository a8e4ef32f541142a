// The three layers with weights: their parameters and how they are applied.
#pragma once
#include <memory>

#include "src/nn/parameter.h"
#include "src/ops/ops.h"

namespace gradus {

struct Linear;
// What a linear layer computes in place of x W^T + b. It comes from outside: lora.h.
struct LinearVariant {
  virtual ~LinearVariant() = default;
  virtual Tensor operator()(const Linear& layer, const Tensor& x) const = 0;
};

enum class Bias : uint8_t { Yes, No };

struct Linear {  // y = x W^T + b
  Linear(Parameters& p, const std::string& name, int64_t in, int64_t out, const Precision& t = {},
         Bias b = Bias::Yes)
      : name(name),
        weight(p.add(name + ".weight", {out, in}, t)),
        bias(b == Bias::Yes ? &p.add(name + ".bias", {out}, t) : nullptr) {}
  Tensor operator()(const Tensor& x) const { return variant ? (*variant)(*this, x) : product(x); }
  Tensor product(const Tensor& x) const { return linear(x, weight.value, bias_value()); }
  Tensor bias_value() const { return bias ? bias->value : Tensor(); }
  std::string name;
  Parameter& weight;
  Parameter* bias;  // nullptr: none
  std::unique_ptr<LinearVariant> variant = {};
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
