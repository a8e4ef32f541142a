// What is different in BERT (Devlin et al. 2019) and GPT-NeoX (Black et al. 2022) from GPT-2
// (transformer.cpp): the order within a block, and the output head.
#include "src/nn/kv_cache.h"

namespace gradus {

// BERT's block.
Tensor TransformerBlock::post_norm(const Tensor& x, const TransformerConfig& c, KvLayer* past) const {
  const Tensor heads = attend(c_attn(x), c, past);
  const Tensor h = ln_1(add(x, dropout(c_proj(heads), c.dropout)));
  return ln_2(add(h, dropout(mlp_c_proj(c.activation(c_fc(h))), c.dropout)));
}

// GPT-NeoX's block.
Tensor TransformerBlock::parallel(const Tensor& x, const TransformerConfig& c, KvLayer* past) const {
  const Tensor heads = attend(c_attn(ln_1(x)), c, past);
  const Tensor h = add(x, dropout(c_proj(heads), c.dropout));
  return add(h, dropout(mlp_c_proj(c.activation(c_fc(ln_2(x)))), c.dropout));
}

void Transformer::add_output_head() {
  const TransformerConfig& c = config;
  if (c.output_head == OutputHead::Untied)
    lm_head_.emplace(parameters, "lm_head", c.vocab, c.channels, c.precision);
  if (c.output_head == OutputHead::Pooled)
    pooler_.emplace(parameters, "pooler", c.channels, c.channels, c.precision);
  if (c.labels > 0) classifier_.emplace(parameters, "classifier", c.channels, c.labels, c.precision);
}

std::vector<Linear*> Transformer::linears() {
  std::vector<Linear*> all;
  for (TransformerBlock& b : blocks)
    for (Linear* l : {&b.c_attn, &b.c_proj, &b.c_fc, &b.mlp_c_proj}) all.push_back(l);
  if (pooler_) all.push_back(&*pooler_);
  if (classifier_) all.push_back(&*classifier_);
  return all;
}

const Tensor& Transformer::head_weight() const {
  return (config.output_head == OutputHead::Tied ? wte_ : lm_head_)->table.value;
}

Tensor Transformer::pooled_head(const Tensor& x) const {
  const Tensor pooled = tanh((*pooler_)(select_token(ends->after_blocks(x), 0)));
  return classifier_ ? (*classifier_)(dropout(pooled, config.dropout)) : pooled;
}

}  // namespace gradus
