// The keys and values of the tokens that a model has read. With a causal mask they depend on no later token,
// so a text that grows by one token needs that token's alone: the others are read from here instead of being
// computed again. The price is memory that grows with the text.
#pragma once
#include <vector>

#include "src/nn/transformer.h"

namespace gradus {

// What a cache costs for each token of each sequence: a key and a value of D numbers for each of KV heads in
// each of L layers, 2 L KV D in the model's precision (GPT-2: 2 L C). B sequences (or beams) of T tokens:
// B T times that; beam search, while it reorders them: twice.
inline int64_t kv_bytes_per_token(const TransformerConfig& c) {
  return 2 * c.layers * c.kv_channels() * size_of(c.precision.value);
}

struct KvLayer {  // the cache of one layer, while tokens are read
  // (Tmax,B,2 KV D): the keys and the values of each token; time first, so that new ones lie together
  Tensor kv;
  int64_t length;  // how many tokens were read before
  Tensor rows;     // int32 (T,B,2): where the keys and values of the T new tokens are in qkv, in rows of KV D

  // Both take qkv (B,T,(H + 2 KV) D).
  void append(const Tensor& qkv);  // puts keys and values after those that are there
  // T = 1, appended: (B,1,H D), from all tokens so far
  Tensor attend(const Tensor& qkv, Heads heads) const;
};

class KvCache {
 public:
  // Allocates everything at once, "kv_cache.h.0" and on, kind Activation: forward activations that are kept.
  // Refuses models without a causal mask, and more tokens than their context.
  KvCache(const Transformer& model, int64_t sequences, int64_t tokens);
  // A second cache whose sequence b is a copy of sequence parents[b] of this one. Both are there until one
  // goes: `cache = cache.select(parents)` needs the memory of two for as long as it runs.
  KvCache select(const std::vector<int32_t>& parents) const;

  int64_t sequences() const { return layers_[0].shape()[1]; }
  int64_t capacity() const { return layers_[0].shape()[0]; }  // in tokens of each sequence
  int64_t length() const { return length_; }                  // how many of them were read
  int64_t bytes() const { return int64_t(layers_.size()) * layers_[0].bytes(); }

 private:
  friend class Transformer;
  std::vector<KvLayer> past(int64_t T) const;  // what T new tokens of each sequence see of it
  KvCache(const Tensor& like, int64_t layers, const Shape& shape, int64_t group);

  std::vector<Tensor> layers_;  // KvLayer::kv
  int64_t group_;               // heads of queries that share one of keys and values
  int64_t length_ = 0;
};

}  // namespace gradus
