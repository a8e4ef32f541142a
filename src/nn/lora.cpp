#include "src/nn/lora.h"

#include <cmath>
#include <optional>
#include <regex>

#include "src/core/named.h"
#include "src/core/rng.h"
#include "src/tensor/context.h"

namespace gradus {

Tensor LoraAdapter::operator()(const Tensor& x) const {
  // BEGIN SOLUTION 12.2
  const Tensor low = linear(gradus::dropout(x, dropout), a.value);
  return linear(gradus::scale(low, scale()), b.value);
  // STUB: todo("12.2", "the output of an adapter, alpha/r dropout(x) A^T B^T", x, scale());
  // END SOLUTION 12.2
}

// The product of a linear layer, with a weight in 4 bits if it has codes, plus the adapter's output if there
// is one.
struct LoraVariant : LinearVariant {
  std::optional<LoraAdapter> lora;
  Tensor operator()(const Linear& l, const Tensor& x) const override {
    const Tensor y = l.weight.codes ? linear_quantized(x, *l.weight.codes, l.bias_value()) : l.product(x);
    return lora && !l.weight.merged ? add(y, (*lora)(x)) : y;
  }
};
static LoraVariant& variant_of(Linear& l) {
  if (!l.variant) l.variant = std::make_unique<LoraVariant>();
  return static_cast<LoraVariant&>(*l.variant);
}

LoraAdapter* adapter_of(const Linear& l) {
  auto* const variant = dynamic_cast<LoraVariant*>(l.variant.get());  // may be that of parallel/
  return variant && variant->lora ? &*variant->lora : nullptr;
}
void adapt(Linear& l, const LoraAdapter& adapter) { variant_of(l).lora.emplace(adapter); }

static void check_not_shared_out(const Transformer& model) {
  for (const Parameter& p : model.parameters)
    check(!p.shard && !*model.parameters.shares, "lora: the model is sharded over ranks; adapters and ",
          "weights in 4 bits need a whole model");
}

static std::vector<Linear*> matching(Transformer& model, const std::string& pattern) {
  std::vector<Linear*> found;
  std::vector<std::string> names;
  std::regex expression;
  try {
    expression = pattern;
  } catch (const std::regex_error& e) {
    fail("lora: the pattern '", pattern, "' is no regular expression: ", e.what());
  }
  for (Linear* l : model.linears()) {
    if (std::regex_match(l->name, expression)) found.push_back(l);
    names.push_back(l->name);
  }
  check(!found.empty(), "lora: the pattern '", pattern,
        "' matches no whole name of a linear layer; there are: ", joined(names),
        "; for example .*c_attn matches all names that end in c_attn");
  return found;
}

// Adds A and B for layer l to `made`.
static void make_adapter(Parameters& made, const Linear& l, const LoraArgs& args, Rng rng) {
  const int64_t out = l.weight.value.shape()[0], in = l.weight.value.last();
  Parameter& a = made.add(l.name + ".lora_A.weight", {args.r, in}, args.precision);
  Parameter& b = made.add(l.name + ".lora_B.weight", {out, args.r}, args.precision);
  std::vector<double> values(size_t(a.value.numel()));
  for (double& v : values) v = (2 * rng.uniform() - 1) / std::sqrt(double(in));
  a.assign(values);
  b.assign(std::vector<double>(size_t(b.value.numel())));
}

void add_lora(Transformer& model, const std::string& pattern, const LoraArgs& args, uint64_t seed) {
  add_lora(model, matching(model, pattern), args, seed);
}

void add_lora(Transformer& model, const std::vector<Linear*>& adapted, const LoraArgs& args, uint64_t seed) {
  check_not_shared_out(model);
  for (const Linear* l : model.linears())
    check(!adapter_of(*l), "lora: the model has adapters already, ", l->name, " among them");
  const DType compute = model.config.precision.value;
  check(args.precision.value == compute, "lora: adapters that compute in ", name_of(args.precision.value),
        " for a model that computes in ", name_of(compute), "; the dtypes must be equal");
  check(args.dropout >= 0 && args.dropout < 1, "lora: dropout ", args.dropout,
        " must be at least 0 and below 1");
  check(std::isfinite(float(args.alpha)), "lora: alpha is ", args.alpha, "; it must be finite");
  for (const Linear* l : adapted) {
    check(!l->of_experts(), "lora: ", l->name,
          " is a layer of experts, which cannot have an adapter; choose ",
          "a pattern that does not match it, for example .*attn.*");
    const Shape& shape = l->weight.value.shape();
    check(args.r >= 1 && args.r <= std::min(shape[0], shape[1]), "lora: rank ", args.r, " for ", l->name, " ",
          shape, "; it can be from 1 to the smaller side");
  }
  model.parameters.drop_grad();
  Parameters made;  // made first, so that an error changes nothing
  uint64_t stream = 0;
  for (const Linear* l : adapted) make_adapter(made, *l, args, Rng(seed, stream++));
  auto next = made.begin();
  // BEGIN SOLUTION 12.1
  for (Parameter& p : model.parameters) model.parameters.set_trainable(p, false);
  for (Linear* l : adapted) {
    Parameter& a = model.parameters.add(std::move(*next++));
    Parameter& b = model.parameters.add(std::move(*next++));
    adapt(*l, {a, b, args.alpha, args.dropout});
  }
  // STUB: todo("12.1", "freeze the model, and give each layer of adapted its A and B", adapted, next);
  // END SOLUTION 12.1
}

// weight <- weight + sign alpha/r B A
static void add_product(Linear& l, double sign) {
  const LoraAdapter& lora = *adapter_of(l);
  Tensor w = l.weight.kept();
  const int64_t out = w.shape()[0], in = w.last(), r = lora.a.value.shape()[0];
  MatmulShape s{.M = out, .N = in, .K = r, .lda = r, .ldb = in, .ldc = in};
  const Call call = ctx(w, cost::matmul(s, lora.a.value.dtype()));
  // BEGIN SOLUTION 12.3
  s.alpha = float(sign * lora.scale());
  be(w).matmul(call, s, lora.b.value.in(), lora.a.value.in(), w.add());
  // STUB: todo("12.3", "add the product, with its factor, to w", call, s, sign);
  // END SOLUTION 12.3
  l.weight.merged = sign > 0;  // set before the rounding, which may fail: so w is never added to twice
  l.weight.round_master();
}

static void set_merged(Transformer& model, bool merged) {
  const char* what = merged ? "merge" : "unmerge";
  std::vector<Linear*> adapted;
  for (Linear* l : model.linears()) {
    if (!adapter_of(*l)) continue;
    check(!l->weight.codes, "lora: cannot ", what, " the adapter of ", l->name,
          ": its weight is kept in 4 bits");
    if (l->weight.merged != merged) adapted.push_back(l);
  }
  check(!adapted.empty(), "lora: cannot ", what, ": the model has no adapter that is", merged ? " not" : "",
        " merged; add_lora() makes them");
  for (Linear* l : adapted) add_product(*l, merged ? 1 : -1);
}

void merge_lora(Transformer& model) { set_merged(model, true); }
void unmerge_lora(Transformer& model) { set_merged(model, false); }

void quantize_frozen(Transformer& model) {
  check_not_shared_out(model);
  const DoubleQuantizer quantizer(current().device);
  std::vector<std::pair<Linear*, DoubleQuantized>> all;  // made first, so that an error changes nothing
  for (Linear* l : model.linears()) {
    check(!l->weight.merged, "lora: the adapter of ", l->name,
          " is merged; call unmerge_lora() before its weight goes into 4 bits");
    check(!l->of_experts() || l->weight.trainable(), "lora: ", l->name,
          " is a layer of experts, whose weights are not kept in 4 bits");
    if (!l->weight.trainable() && !l->weight.codes) all.emplace_back(l, quantizer.quantize(l->weight.kept()));
  }
  check(!all.empty(),
        "lora: there is no frozen weight of a linear layer that is not in 4 bits yet; add_lora() freezes "
        "them");
  for (auto& [l, codes] : all) {
    l->weight.codes = codes;
    variant_of(*l);
    for (const Tensor* t : {&l->weight.value, &l->weight.master})
      if (t->defined()) t->storage().drop("the weight is kept in 4 bits");
  }
}

}  // namespace gradus
