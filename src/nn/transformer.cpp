#include "src/nn/transformer.h"

#include <cmath>

#include "src/core/rng.h"
#include "src/tensor/context.h"

namespace gradus {

void TransformerConfig::validate() const {
  check(vocab > 0 && context > 0 && layers > 0 && heads > 0 && channels > 0, "transformer: vocabulary ",
        vocab, ", context ", context, ", layers ", layers, ", heads ", heads, ", channels ", channels,
        "; every size must be at least 1");
  check(channels % heads == 0, "transformer: ", heads, " heads do not divide ", channels,
        " channels; choose a multiple of the heads, for example ", (channels / heads + 1) * heads);
  check(dropout >= 0 && dropout < 1, "transformer: dropout ", dropout, " must be at least 0 and below 1");
}

int64_t TransformerConfig::parameter_count() const {
  const int64_t C = channels;
  return vocab * C + context * C + layers * (12 * C * C + 13 * C) + 2 * C;
}

int64_t TransformerConfig::flops_per_token() const {
  return 6 * parameter_count() + 12 * layers * channels * context;
}

TransformerConfig transformer_config(std::string_view name) {
  TransformerConfig c{.vocab = 50257, .context = 1024};
  if (name == "gpt2")
    c.layers = 12, c.heads = 12, c.channels = 768;
  else if (name == "gpt2-medium")
    c.layers = 24, c.heads = 16, c.channels = 1024;
  else if (name == "gpt2-large")
    c.layers = 36, c.heads = 20, c.channels = 1280;
  else if (name == "gpt2-xl")
    c.layers = 48, c.heads = 25, c.channels = 1600;
  else
    fail("model '", name, "' is unknown; known: gpt2, gpt2-medium, gpt2-large, gpt2-xl");
  return c;
}

TransformerBlock::TransformerBlock(Parameters& p, const std::string& name, const TransformerConfig& c)
    : ln_1(p, name + ".ln_1", c.channels, c.dtype),
      c_attn(p, name + ".attn.c_attn", c.channels, 3 * c.channels, c.dtype),
      c_proj(p, name + ".attn.c_proj", c.channels, c.channels, c.dtype),
      ln_2(p, name + ".ln_2", c.channels, c.dtype),
      c_fc(p, name + ".mlp.c_fc", c.channels, 4 * c.channels, c.dtype),
      mlp_c_proj(p, name + ".mlp.c_proj", 4 * c.channels, c.channels, c.dtype) {}

Tensor TransformerBlock::operator()(const Tensor& x, const TransformerConfig& c) const {
  // BEGIN SOLUTION 03.1
  const Tensor heads = c.attention(c_attn(ln_1(x)), c.heads, Mask::Causal, c.dropout);
  const Tensor h = add(x, dropout(c_proj(heads), c.dropout));
  return add(h, dropout(mlp_c_proj(gelu(c_fc(ln_2(h)))), c.dropout));
  // STUB: todo("03.1", "h = x + proj(attention(ln_1(x))); y = h + mlp(ln_2(h))", x, c);
  // END SOLUTION 03.1
}

Transformer::Transformer(const TransformerConfig& c)
    : config((c.validate(), c)),
      wte_(parameters, "wte", c.vocab, c.channels, c.dtype),
      wpe_(parameters, "wpe", c.context, c.channels, c.dtype),
      blocks_([&] {
        std::vector<TransformerBlock> blocks;
        for (int64_t l = 0; l < c.layers; ++l) blocks.emplace_back(parameters, "h." + std::to_string(l), c);
        return blocks;
      }()),
      ln_f_(parameters, "ln_f", c.channels, c.dtype) {}

void Transformer::initialize(uint64_t seed) {
  const auto ends_with = [](const std::string& name, std::string_view end) { return name.ends_with(end); };
  if (!current().device.has_data()) return;
  uint64_t stream = 0;
  for (Parameter& p : parameters) {
    std::vector<double> values(p.value.numel(), 0.0);
    const bool norm = p.name.find("ln_") != std::string::npos;
    const bool residual = ends_with(p.name, "c_proj.weight");
    const double std = residual ? 0.02 / std::sqrt(2.0 * config.layers) : 0.02;
    Rng rng(seed, stream++);
    if (p.decay)
      for (double& v : values) v = std * rng.normal();
    else if (norm && ends_with(p.name, ".weight"))
      values.assign(values.size(), 1.0);
    copy_from_host(p.value, values);
  }
}

Tensor Transformer::logits(const Tensor& ids) const {
  check(ids.shape().rank() == 2 && ids.shape()[1] <= config.context, "transformer: token ids are ",
        ids.shape(), "; they must be (B, T) with T at most the context, ", config.context);
  Tensor x = dropout(add_positions(embedding(wte_.table.value, ids), wpe_.table.value), config.dropout);
  for (const TransformerBlock& block : blocks_) x = block(x, config);
  return linear(ln_f_(x), wte_.table.value);
}

Tensor Transformer::loss(const Tensor& ids, const Tensor& targets) const {
  return cross_entropy(logits(ids), targets);
}

}  // namespace gradus
