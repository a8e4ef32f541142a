#include "src/nn/transformer.h"

#include <cmath>

#include "src/core/rng.h"
#include "src/nn/kv_cache.h"
#include "src/tensor/context.h"

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
  // STUB: todo("03.1", "h = x + proj(attention(ln_1(x))); y = h + mlp(ln_2(h))", x, c, past);
  // END SOLUTION 03.1
}

static std::optional<Embedding> table_of(int64_t count, Parameters& p, const char* name,
                                         const TransformerConfig& c) {
  return count > 0 ? std::optional<Embedding>(std::in_place, p, name, count, c.channels, c.precision)
                   : std::nullopt;
}
static std::optional<Linear> linear_to(int64_t out, Parameters& p, const char* name,
                                       const TransformerConfig& c) {
  return out > 0 ? std::optional<Linear>(std::in_place, p, name, c.channels, out, c.precision) : std::nullopt;
}

Transformer::Transformer(const TransformerConfig& c)
    : config((c.validate(), c)),
      wte_(parameters, "wte", c.vocab, c.channels, c.precision),
      wpe_(table_of(c.rotary > 0 ? 0 : c.context, parameters, "wpe", c)),
      wtt_(table_of(c.token_types, parameters, "wtt", c)),
      blocks_([&] {
        std::vector<TransformerBlock> blocks;
        for (int64_t l = 0; l < c.layers; ++l) blocks.emplace_back(parameters, "h." + std::to_string(l), c);
        return blocks;
      }()),
      ln_f_(parameters, c.residual == Residual::PostNorm ? "ln_e" : "ln_f", c.channels, c.precision,
            c.norm_eps),
      lm_head_(table_of(c.output_head == OutputHead::Untied ? c.vocab : 0, parameters, "lm_head", c)),
      pooler_(linear_to(c.output_head == OutputHead::Pooled ? c.channels : 0, parameters, "pooler", c)),
      classifier_(linear_to(c.labels, parameters, "classifier", c)) {}

void Transformer::initialize(uint64_t seed) {
  const auto ends_with = [](const std::string& name, std::string_view end) { return name.ends_with(end); };
  if (!current().device.has_data()) return;
  const double smaller = config.residual == Residual::PostNorm ? 1 : 1 / std::sqrt(2.0 * config.layers);
  uint64_t stream = 0;
  for (Parameter& p : parameters) {
    std::vector<double> values(p.value.numel(), 0.0);
    const bool norm = p.name.find("ln_") != std::string::npos;
    const double std = ends_with(p.name, "c_proj.weight") ? 0.02 * smaller : 0.02;
    Rng rng(seed, stream++);
    if (p.decay)
      for (double& v : values) v = std * rng.normal();
    else if (norm && ends_with(p.name, ".weight"))
      values.assign(values.size(), 1.0);
    Tensor kept = p.kept();
    copy_from_host(kept, values);
    p.round_master();
  }
}

Tensor Transformer::embed(const Tensor& ids, const Tensor& types, int64_t first_position) const {
  Tensor x = embedding(wte_.table.value, ids);
  if (wtt_) x = add(x, embedding(wtt_->table.value, types));
  if (wpe_) {
    const Tensor& table = wpe_->table.value;  // a part of it would have no gradient
    x = add_positions(x, first_position > 0 ? table.narrow(first_position, ids.shape()[1]) : table);
  }
  if (config.residual == Residual::PostNorm) x = ln_f_(x);
  return dropout(x, config.dropout);
}

Tensor Transformer::head(const Tensor& x) const {
  if (config.output_head == OutputHead::Tied) return linear(x, wte_.table.value);
  if (config.output_head == OutputHead::Untied) return linear(x, lm_head_->table.value);
  const Tensor pooled = tanh((*pooler_)(select_token(x, 0)));
  return classifier_ ? (*classifier_)(dropout(pooled, config.dropout)) : pooled;
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
  for (const TransformerBlock& block : blocks_) x = block(x, config);
  return head(config.residual == Residual::PostNorm ? x : ln_f_(x));
}

Tensor Transformer::next_logits(const Tensor& ids, KvCache& cache) const {
  check(cache.layers_.size() == blocks_.size() && cache.layers_[0].last() == 2 * config.channels,
        "next_logits: the cache was made for another model");
  check(ids.shape().rank() == 2 && ids.shape()[0] == cache.sequences() && ids.shape()[1] >= 1,
        "next_logits: token ids are ", ids.shape(), "; they must be (B, T) with B = ", cache.sequences(),
        ", the cache's sequences, and at least one token");
  const int64_t T = ids.shape()[1], before = cache.length();
  check(T == 1 || before == 0, "next_logits: ", T, " tokens after ", before,
        "; after the prompt, tokens are read one at a time");
  check(before + T <= cache.capacity(), "next_logits: the cache has room for ", cache.capacity(),
        " tokens of each sequence, ", before, " were read, and ", T, " more do not fit; make a larger one");
  const Evaluation evaluation;
  std::vector<KvLayer> past = cache.past(T);
  Tensor x = embed(ids, {}, before);
  for (size_t l = 0; l < blocks_.size(); ++l) x = blocks_[l](x, config, &past[l]);
  x = select_token(x, T - 1);
  x = head(config.residual == Residual::PostNorm ? x : ln_f_(x));
  cache.length_ += T;
  return x;
}

Tensor Transformer::loss(const Tensor& ids, const Tensor& targets, const Tensor& types) const {
  check(config.output_head != OutputHead::Pooled || config.labels > 0,
        "transformer: a model without labels has no loss; set labels, for example to 2");
  return cross_entropy(logits(ids, types), targets);
}

}  // namespace gradus
