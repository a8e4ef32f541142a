// The layers with weights: their parameters and how they are applied.
#pragma once
#include <memory>

#include "src/nn/parameter.h"
#include "src/ops/ops.h"

namespace gradus {

struct Linear;
// Replaces x W^T + b in a linear layer (lora.h, parallel/).
struct LinearVariant {
  virtual ~LinearVariant() = default;
  virtual Tensor operator()(const Linear& layer, const Tensor& x) const = 0;
};

enum class Bias : uint8_t { Yes, No };
struct Experts {
  int64_t count;
};

struct Linear {  // y = x W^T + b
  Linear(Parameters& p, const std::string& name, int64_t in, int64_t out, const Precision& t = {},
         Bias b = Bias::Yes)
      : name(name),
        weight(p.add(name + ".weight", {out, in}, t)),
        bias(b == Bias::Yes ? &p.add(name + ".bias", {out}, t) : nullptr) {}
  // One layer per expert, without biases: weight (experts, out, in), x (experts, ..., in).
  Linear(Parameters& p, const std::string& name, Experts experts, int64_t in, int64_t out, const Precision& t)
      : name(name), weight(p.add(name + ".weight", {experts.count, out, in}, t)), bias(nullptr) {}
  Tensor operator()(const Tensor& x) const { return variant ? (*variant)(*this, x) : product(x); }
  Tensor product(const Tensor& x) const {
    if (of_experts()) return expert_linear(x, weight.value);
    return linear(x, weight.value, bias_value());
  }
  bool of_experts() const { return weight.value.shape().rank() == 3; }
  Tensor bias_value() const { return bias ? bias->value : Tensor(); }
  std::string name;
  Parameter& weight;
  Parameter* bias;  // nullptr: no bias
  std::unique_ptr<LinearVariant> variant = {};
};

enum class NormKind : uint8_t { Layer, Rms };

struct Norm {
  Norm(Parameters& p, const std::string& name, int64_t channels, const Precision& t, double eps,
       NormKind kind = NormKind::Layer)
      : gamma(p.add(name + ".weight", {channels}, t)),
        beta(kind == NormKind::Layer ? &p.add(name + ".bias", {channels}, t) : nullptr),
        eps(eps) {}
  Tensor operator()(const Tensor& x) const {
    return beta ? layernorm(x, gamma.value, beta->value, eps) : rmsnorm(x, gamma.value, eps);
  }
  Parameter& gamma;
  Parameter* beta;  // nullptr: an RMSNorm, which has none
  double eps;
};

struct Embedding {
  Embedding(Parameters& p, const std::string& name, int64_t count, int64_t channels, const Precision& t)
      : table(p.add(name + ".weight", {count, channels}, t)) {}
  Parameter& table;
};

}  // namespace gradus
