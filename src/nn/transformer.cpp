#include "src/nn/transformer.h"

#include <cmath>

#include "src/core/rng.h"
#include "src/nn/kv_cache.h"
#include "src/tensor/context.h"

// GPT-2, alone. What BERT and GPT-NeoX have in other places is in bert_neox.cpp.
namespace gradus {

TransformerBlock::TransformerBlock(Parameters& p, const std::string& name, const TransformerConfig& c)
    : ln_1(p, name + ".ln_1", c.channels, c.precision, c.norm_eps),
      c_attn(p, name + ".attn.c_attn", c.channels, 3 * c.channels, c.precision),
      c_proj(p, name + ".attn.c_proj", c.channels, c.channels, c.precision),
      ln_2(p, name + ".ln_2", c.channels, c.precision, c.norm_eps),
      c_fc(p, name + ".mlp.c_fc", c.channels, 4 * c.channels, c.precision),
      mlp_c_proj(p, name + ".mlp.c_proj", 4 * c.channels, c.channels, c.precision) {}

Tensor TransformerBlock::operator()(const Tensor& x, const TransformerConfig& c, KvLayer* past) const {
  if (c.residual == Residual::PostNorm) return post_norm(x, c, past);
  if (c.residual == Residual::Parallel) return parallel(x, c, past);
  // BEGIN SOLUTION 03.1
  const Tensor heads = attend(c_attn(ln_1(x)), c, past);
  const Tensor h = add(x, dropout(c_proj(heads), c.dropout));
  return add(h, dropout(mlp_c_proj(c.activation(c_fc(ln_2(h)))), c.dropout));
  // STUB: todo("03.1", "the two branches of a block, each added to its input", x, c, past);
  // END SOLUTION 03.1
}

Tensor TransformerBlock::attend(const Tensor& qkv, const TransformerConfig& c, KvLayer* past) {
  const int64_t first = past ? past->length : 0;
  const Tensor turned = c.rotary > 0 ? rotary(qkv, c.heads, c.rotary, first) : qkv;
  if (past) past->append(turned);
  return first > 0 ? past->attend(turned, c.heads) : c.attention(turned, c.heads, c.mask, c.dropout);
}

Transformer::Transformer(const TransformerConfig& c, Allocate allocate)
    : config((c.validate(), c)),
      parameters(allocate),
      wte_(parameters, "wte", c.vocab, c.channels, c.precision) {
  if (c.rotary == 0) wpe_.emplace(parameters, "wpe", c.context, c.channels, c.precision);
  if (c.token_types > 0) wtt_.emplace(parameters, "wtt", c.token_types, c.channels, c.precision);
  for (int64_t l = 0; l < c.layers; ++l) blocks_.emplace_back(parameters, "h." + std::to_string(l), c);
  norm_.emplace(parameters, c.residual == Residual::PostNorm ? "ln_e" : "ln_f", c.channels, c.precision,
                c.norm_eps);
  add_output_head();
}

void Transformer::initialize(uint64_t seed, const AssignValues& assign) {
  if (!current().device.has_data()) return;
  const double smaller = config.residual == Residual::PostNorm ? 1 : 1 / std::sqrt(2.0 * config.layers);
  uint64_t stream = 0;
  for (Parameter& p : parameters) {
    std::vector<double> values(p.value.numel(), 0.0);
    const bool gain = p.name.find("ln_") != std::string::npos && p.name.ends_with(".weight");
    const double std = p.name.ends_with("c_proj.weight") ? 0.02 * smaller : 0.02;
    Rng rng(seed, stream++);
    if (p.decay)
      for (double& v : values) v = std * rng.normal();
    else if (gain)
      values.assign(values.size(), 1.0);
    assign(p, values);
  }
}

Tensor Transformer::embed(const Tensor& ids, const Tensor& types, int64_t first_position) const {
  Tensor x = embedding(wte_.table.value, ids);
  if (wtt_) x = add(x, embedding(wtt_->table.value, types));
  if (wpe_) {
    const Tensor& table = wpe_->table.value;  // a part of it would have no gradient
    x = add_positions(x, first_position > 0 ? table.narrow(first_position, ids.shape()[1]) : table);
  }
  if (config.residual == Residual::PostNorm) x = (*norm_)(x);
  return dropout(x, config.dropout);
}

Tensor Transformer::head(const Tensor& x) const {
  const Tensor last = config.residual == Residual::PostNorm ? x : (*norm_)(x);
  return config.output_head == OutputHead::Tied ? linear(last, wte_.table.value) : other_head(last);
}

Tensor Transformer::logits(const Tensor& ids, const Tensor& types) const {
  check(ids.shape().rank() == 2 && ids.shape()[1] <= config.context, "transformer: token ids are ",
        ids.shape(), "; they must be (B, T) with T at most the context, ", config.context);
  if (config.token_types > 0)
    check(types.defined() && types.shape() == ids.shape(), "transformer: this model has ", config.token_types,
          " token types; give the type of each token, int32 ", ids.shape(), ", for example all 0");
  else
    check(!types.defined(), "transformer: types of tokens were given to a model that has none");
  Tensor x = embed(ids, types, 0);
  if (!segments.empty() || from_the_start) return head(through_segments(x));
  for (const TransformerBlock& block : blocks_) x = block(x, config);
  return head(x);
}

Tensor Transformer::loss(const Tensor& ids, const Tensor& targets, const Tensor& types,
                         const Tensor& count) const {
  check(config.output_head != OutputHead::Pooled || config.labels > 0,
        "transformer: a model without labels has no loss; set labels, for example to 2");
  return cross_entropy(logits(ids, types), targets, count);
}

}  // namespace gradus
