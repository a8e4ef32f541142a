#include "src/nn/transformer.h"

#include <algorithm>
#include <cmath>

#include "src/core/rng.h"
#include "src/nn/kv_cache.h"
#include "src/tensor/profile_range.h"

// Only GPT-2: bert_neox.cpp has what is different in BERT and GPT-NeoX, mixture.cpp has the mixture of
// experts.
namespace gradus {

static int64_t norm_parameters(const TransformerConfig& c) { return c.norm == NormKind::Layer ? 2 : 1; }
static Linear linear_of(Parameters& p, const std::string& name, int64_t in, int64_t out,
                        const TransformerConfig& c) {
  return {p, name, in, out, c.precision, c.biases ? Bias::Yes : Bias::No};
}
static Linear mlp_linear(Parameters& p, const std::string& block, const std::string& name, int64_t in,
                         int64_t out, const TransformerConfig& c) {
  if (c.experts == 0) return linear_of(p, block + ".mlp." + name, in, out, c);
  return {p, block + ".mlp.experts." + name, Experts{c.experts}, in, out, c.precision};
}

TransformerBlock::TransformerBlock(Parameters& p, const std::string& name, const TransformerConfig& c)
    : name(name),
      ln_1(p, name + ".ln_1", c.channels, c.precision, c.norm_eps, c.norm),
      c_attn(linear_of(p, name + ".attn.c_attn", c.channels, c.qkv_channels(), c)),
      c_proj(linear_of(p, name + ".attn.c_proj", c.channels, c.channels, c)),
      ln_2(p, name + ".ln_2", c.channels, c.precision, c.norm_eps, c.norm),
      c_fc(mlp_linear(p, name, "c_fc", c.channels, (c.gated() ? 2 : 1) * c.hidden_channels(), c)),
      mlp_c_proj(mlp_linear(p, name, "c_proj", c.hidden_channels(), c.channels, c)) {
  if (c.experts > 0) router.emplace(linear_of(p, name + ".mlp.router", c.channels, c.experts, c));
}

int64_t TransformerBlock::parameters_of(const TransformerConfig& c) {
  return 2 * norm_parameters(c) + 4 * (c.biases ? 2 : 1) + (c.experts > 0 ? 1 : 0);
}

Tensor TransformerBlock::operator()(const Tensor& x, const TransformerConfig& c, KvLayer* past) const {
  const ProfileRange range(name.c_str());
  if (c.residual == Residual::PostNorm) return post_norm(x, c, past);
  if (c.residual == Residual::Parallel) return parallel(x, c, past);
  if (c.experts > 0) return mixture(x, c, past);
  // BEGIN SOLUTION 03.1
  const Tensor heads = attend(c_attn(ln_1(x)), c, past);
  const Tensor h = add(x, dropout(c_proj(heads), c.dropout));
  return add(h, dropout(mlp_c_proj(c.activation(c_fc(ln_2(h)))), c.dropout));
  // STUB: todo("03.1", "the two branches of a block, each added to its input", x, c, past);
  // END SOLUTION 03.1
}

Tensor TransformerBlock::attend(const Tensor& qkv, const TransformerConfig& c, KvLayer* past) const {
  const int64_t first = past ? past->length : 0, D = c.channels / c.heads;
  const auto& shard = c_attn.weight.shard;
  const int64_t first_head = shard ? shard->begin / (D * c.channels) : 0;
  if (attention) return (*attention)(qkv, c);
  const int64_t group = c.heads_per_kv(), kv = qkv.last() / ((group + 2) * D);  // heads that this rank has
  const Heads heads(group * kv, kv);
  const Tensor turned = c.rotary > 0 ? rotary(qkv, heads, c.rotary, first, c.rotary_base) : qkv;
  if (past) past->append(turned);
  return first > 0 ? past->attend(turned, heads) : c.attention(turned, heads, c.mask, c.dropout, first_head);
}

static ModelPart within(const TransformerConfig& c, ModelPart part) {
  int64_t begin = 0;
  for (BlockRange& r : part.ranges) {
    r.end = std::min(r.end, c.layers);
    check(r.first >= begin && r.first <= r.end, "transformer: blocks from ", r.first, " to ", r.end, " of ",
          c.layers, "; a part begins at 0 or later, no range ends before it begins, and ranges are in order");
    begin = r.end;
  }
  check(!part.ranges.empty(), "transformer: a part needs a range of blocks; it may be empty");
  return part;
}

// Skips the numbers of parameters that are not in the part, so that every parameter has the same number as in
// the whole model.
Transformer::Transformer(const TransformerConfig& c, Allocate allocate, const ModelPart& wanted)
    : config((c.validate(), c)), part(within(c, wanted)), parameters(allocate) {
  const auto embedding = [&](bool here, std::optional<Embedding>& e, const char* name, int64_t count) {
    if (here)
      e.emplace(parameters, name, count, c.channels, c.precision);
    else
      parameters.pass_over(1);
  };
  const bool tied = c.output_head == OutputHead::Tied, post_norm = c.residual == Residual::PostNorm;
  embedding(part.embedding || (part.head && tied), wte_, "wte", c.vocab);
  if (c.rotary == 0) embedding(part.embedding, wpe_, "wpe", c.context);
  if (c.token_types > 0) embedding(part.embedding, wtt_, "wtt", c.token_types);
  int64_t next = 0;
  const auto pass_over_to = [&](int64_t block) {
    parameters.pass_over((block - next) * TransformerBlock::parameters_of(c));
    next = block;
  };
  for (const BlockRange& r : part.ranges) {
    pass_over_to(r.first);
    for (; next < r.end; ++next) blocks.emplace_back(parameters, "h." + std::to_string(next), c);
  }
  pass_over_to(c.layers);
  if (post_norm ? part.embedding : part.head)
    norm_.emplace(parameters, post_norm ? "ln_e" : "ln_f", c.channels, c.precision, c.norm_eps, c.norm);
  else
    parameters.pass_over(norm_parameters(c));
  if (part.head) add_output_head();
}

void Transformer::initialize(uint64_t seed, const AssignValues& assign) {
  if (!current().device.has_data()) return;
  const double smaller = config.residual == Residual::PostNorm ? 1 : 1 / std::sqrt(2.0 * config.layers);
  for (Parameter& p : parameters) {
    const Shape& whole = p.shard ? p.shard->whole : p.value.shape();
    std::vector<double> values(whole.numel(), 0.0);
    const bool gain = p.name.find("ln_") != std::string::npos && p.name.ends_with(".weight");
    const double std = p.name.ends_with("c_proj.weight") ? 0.02 * smaller : 0.02;
    Rng rng(seed, uint64_t(p.number));
    if (p.decay)
      for (double& v : values) v = std * rng.normal();
    else if (gain)
      values.assign(values.size(), 1.0);
    assign(p, values);
  }
}

void Transformer::check_inputs(const Tensor& ids, const Tensor& types) const {
  check(ids.shape().rank() == 2 && ids.shape()[1] <= config.context, "transformer: token ids are ",
        ids.shape(), "; they must be (B, T) with T at most the context, ", config.context);
  if (config.token_types > 0)
    check(types.defined() && types.shape() == ids.shape(), "transformer: this model has ", config.token_types,
          " token types; give the type of each token, int32 ", ids.shape(), ", for example all 0");
  else
    check(!types.defined(), "transformer: token types were given to a model that has none");
}

Tensor Transformer::with_positions(const Tensor& x, int64_t first) const {
  const Tensor& table = wpe_->table.value;
  if (positions) return (*positions)(x, table);
  // A part of the table would have no gradient.
  return add_positions(x, first > 0 ? table.narrow(first, x.shape()[1]) : table);
}

Tensor Transformer::embed(const Tensor& ids, const Tensor& types, int64_t first_position) const {
  check(part.embedding, "transformer: this part of a model has no embedding");
  check_inputs(ids, types);
  Tensor x = ends->embed(wte_->table.value, ids);
  if (wtt_) x = add(x, embedding(wtt_->table.value, types));
  if (wpe_) x = with_positions(x, first_position);
  x = ends->before_blocks(x);
  if (config.residual == Residual::PostNorm) x = (*norm_)(x);
  return dropout(x, config.dropout, ends->token_part * x.shape()[1] * x.last());
}

Tensor Transformer::through_blocks(Tensor x, size_t range) const {
  check(range < part.ranges.size(), "transformer: this part has ", part.ranges.size(),
        " ranges of blocks; it has no range ", range);
  const int64_t first = part.ranges[range].first;
  BlockRange own;  // of `blocks`
  own.end = 0;
  for (size_t i = 0; i <= range; ++i) own = {own.end, own.end + part.ranges[i].end - part.ranges[i].first};
  if (!part.embedding || range > 0)
    current().dropout_ordinal() = uint32_t(1 + TransformerBlock::kDropouts * first);
  if (!segments.empty() || from_the_start) return through_segments(x, own);
  for (int64_t l = own.first; l < own.end; ++l) x = blocks[size_t(l)](x, config);
  return x;
}

Tensor Transformer::through_all(Tensor x) const {
  check(int64_t(blocks.size()) == config.layers, "transformer: this part has ", blocks.size(), " of ",
        config.layers, " blocks; call embed(), through_blocks() and head() instead");
  for (size_t range = 0; range < part.ranges.size(); ++range) x = through_blocks(x, range);
  return x;
}

Tensor Transformer::before_head(const Tensor& x) const {
  check(part.head, "transformer: this part of a model has no head");
  return config.residual == Residual::PostNorm ? x : (*norm_)(x);
}

Tensor Transformer::head(const Tensor& x) const {
  const Tensor last = before_head(x);
  return config.output_head == OutputHead::Pooled ? pooled_head(last) : ends->logits(last, head_weight());
}

Tensor Transformer::logits(const Tensor& ids, const Tensor& types) const {
  return head(through_all(embed(ids, types)));
}

Tensor Transformer::loss(const Tensor& ids, const Tensor& targets, const Tensor& types,
                         const Tensor& count) const {
  const ProfileRange range("forward");
  check(config.output_head != OutputHead::Pooled || config.labels > 0,
        "transformer: a model without labels has no loss; set labels, for example to 2");
  return with_balance(head_loss(through_all(embed(ids, types)), targets, count), count);
}

Tensor Transformer::head_loss(const Tensor& x, const Tensor& targets, const Tensor& count) const {
  const Tensor last = before_head(x);
  if (config.output_head == OutputHead::Pooled) return cross_entropy(pooled_head(last), targets, count);
  if (config.loss_rows == 0) return ends->loss(last, head_weight(), targets, count);
  return linear_cross_entropy(last, head_weight(), targets, count, config.loss_rows);
}

}  // namespace gradus
