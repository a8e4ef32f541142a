#include "src/nn/kv_cache.h"

#include <cmath>

#include "src/tensor/context.h"

namespace gradus {

static Tensor indices(const std::vector<int32_t>& values, const Shape& shape) {
  return from_host(current().device, values, shape, DType::I32, Kind::Data, "kv_cache.rows");
}

// to[i,:] = from[rows[i],:], by the kernel that reads an embedding's table. from: (any,C); to: (rows,C).
static void copy_rows(const Tensor& from, const Tensor& rows, Tensor to) {
  const RowShape s{rows.numel(), from.last()};
  be(from).embedding_fwd(ctx(from, cost::embedding_fwd(s, to.dtype())), s, from.shape()[0], from.in(),
                         rows.in(), to.set());
}

void KvLayer::append(const Tensor& qkv) {
  const ProfileRange range("kv_cache.append");
  const int64_t T = qkv.shape()[1], width = kv.last() / 2;
  copy_rows(qkv.reshape({qkv.numel() / width, width}), rows, kv.narrow(length, T));
}

static Tensor cast_to(DType t, const Tensor& x) {
  if (x.dtype() == t) return x;
  Tensor y = empty(x, x.shape(), t, "cast");
  cast(x, y.set());
  return y;
}

// softmax(q K^T / sqrt(D)) V with one query per sequence and head, without a mask: two batched products, each
// for the `group` queries that share keys and values. The scores are fp32, as in attention_plain and
// attention_flash, which read the prompt.
Tensor KvLayer::attend(const Tensor& qkv, Heads heads) const {
  const ProfileRange range("kv_cache.attend");
  const auto [H, KV] = heads;
  const int64_t B = qkv.shape()[0], W = qkv.last(), D = W / (H + 2 * KV), T = length + 1, group = H / KV;
  const int64_t token = 2 * KV * D;  // elements of the cache per token and sequence
  const CBuf key = kv.in(), value = key.from(KV * D);
  Tensor scores = empty(qkv, {B, H, T}, statistics_dtype(qkv.dtype()), "attention.scores");
  const MatmulShape qk{.M = group,
                       .N = T,
                       .K = D,
                       .tb = Trans::Yes,
                       .lda = D,
                       .ldb = B * token,
                       .ldc = T,
                       .batch = {{B, W, token, H * T}, {KV, group * D, D, group * T}},
                       .alpha = 1 / std::sqrt(float(D))};
  be(qkv).matmul(ctx(qkv, cost::matmul(qk, qkv.dtype())), qk, qkv.in(), key, scores.set());
  const Tensor probs = cast_to(qkv.dtype(), softmax(scores));
  Tensor y = empty(qkv, {B, 1, H * D}, "attention");
  const MatmulShape pv{.M = group,
                       .N = D,
                       .K = T,
                       .lda = T,
                       .ldb = B * token,
                       .ldc = D,
                       .batch = {{B, H * T, token, H * D}, {KV, group * T, D, group * D}}};
  be(qkv).matmul(ctx(qkv, cost::matmul(pv, qkv.dtype())), pv, probs.in(), value, y.set());
  return y;
}

KvCache::KvCache(const Tensor& like, int64_t layers, const Shape& shape, int64_t group) : group_(group) {
  for (int64_t l = 0; l < layers; ++l)
    layers_.emplace_back(like.device(), shape, like.dtype(), Kind::Activation,
                         "kv_cache.h." + std::to_string(l));
}

static Shape checked_shape(const TransformerConfig& c, int64_t sequences, int64_t tokens) {
  check(
      c.mask == Mask::Causal && c.output_head != OutputHead::Pooled && c.token_types == 0,
      "kv_cache: this model reads a text as a whole, as BERT does: the keys and values of a token depend on "
      "later ones, so they cannot be cached; use a model with a causal mask, for example gpt2");
  check(sequences >= 1 && tokens >= 1, "kv_cache: ", sequences, " sequences of ", tokens,
        " tokens; there must be at least one of each");
  check(tokens <= c.context, "kv_cache: ", tokens, " tokens are more than the model's context, ", c.context);
  return {tokens, sequences, 2 * c.kv_channels()};
}

KvCache::KvCache(const Transformer& model, int64_t sequences, int64_t tokens)
    : KvCache(model.parameters.begin()->value, model.config.layers,
              checked_shape(model.config, sequences, tokens), model.config.heads_per_kv()) {}

KvCache KvCache::select(const std::vector<int32_t>& parents) const {
  const ProfileRange range("kv_cache.select");
  const int64_t B = sequences(), width = layers_[0].last();
  check(!parents.empty(), "kv_cache: no sequence was selected");
  for (const int32_t p : parents)
    check(p >= 0 && p < B, "kv_cache: sequence ", p, " was selected; the cache has ", B, ", from 0 on");
  std::vector<int32_t> rows;
  for (int64_t t = 0; t < length_; ++t)
    for (const int32_t p : parents) rows.push_back(int32_t(t * B + p));
  const Tensor from = indices(rows, {int64_t(rows.size())});
  KvCache selected(layers_[0], int64_t(layers_.size()), {capacity(), int64_t(parents.size()), width}, group_);
  selected.length_ = length_;
  for (size_t l = 0; l < layers_.size(); ++l)
    copy_rows(layers_[l].reshape({capacity() * B, width}), from, selected.layers_[l].narrow(0, length_));
  return selected;
}

std::vector<KvLayer> KvCache::past(int64_t T) const {
  const int64_t B = sequences();
  std::vector<int32_t> rows;
  for (int64_t t = 0; t < T; ++t)
    for (int64_t b = 0; b < B; ++b)
      for (const int64_t part : {group_, group_ + 1})
        rows.push_back(int32_t((b * T + t) * (group_ + 2) + part));
  const Tensor in_qkv = indices(rows, {T, B, 2});
  std::vector<KvLayer> layers;
  for (const Tensor& kv : layers_) layers.push_back({kv, length_, in_qkv});
  return layers;
}

}  // namespace gradus
