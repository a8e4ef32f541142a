// The keys and values of the tokens that a model has read. With a causal mask they do not depend on later
// tokens. So when a text grows by one token, the model computes only the keys and values of this token and
// reads the others from the cache. The cost is memory that grows with the text.
#pragma once
#include <vector>

#include "src/nn/transformer.h"

namespace gradus {

// Bytes of the cache per token and sequence: one key and one value of D elements per head (KV heads) and
// layer (L), so 2 L KV D elements in the model's precision (GPT-2: 2 L C). B sequences (or beams) of T tokens
// take B T times that; beam search takes twice as much while it reorders them.
inline int64_t kv_bytes_per_token(const TransformerConfig& c) {
  return 2 * c.layers * c.kv_channels() * size_of(c.precision.value);
}

struct KvLayer {  // the cache of one layer, while tokens are read
  // (Tmax,B,2 KV D): the keys and the values of each token; time first, so that new ones are contiguous
  Tensor kv;
  int64_t length;  // tokens that were read before
  Tensor rows;     // int32 (T,B,2): where qkv has the keys and values of the T new tokens, in rows of KV D

  // Both take qkv (B,T,(H + 2 KV) D).
  void append(const Tensor& qkv);  // appends the keys and values of the new tokens
  // T = 1, after append(): (B,1,H D), the attention of the new token to all tokens so far
  Tensor attend(const Tensor& qkv, Heads heads) const;
};

class KvCache {
 public:
  // Allocates all memory at once: one tensor per layer, "kv_cache.h.0" and so on, of kind Activation. An
  // error for models without a causal mask, and for more tokens than the model's context.
  KvCache(const Transformer& model, int64_t sequences, int64_t tokens);
  // Returns a second cache whose sequence b is a copy of sequence parents[b] of this one. An
  // assignment `cache = cache.select(parents)` needs the memory of two caches while it runs.
  KvCache select(const std::vector<int32_t>& parents) const;

  int64_t sequences() const { return layers_[0].shape()[1]; }
  int64_t capacity() const { return layers_[0].shape()[0]; }  // tokens per sequence
  int64_t length() const { return length_; }                  // tokens that were read
  int64_t bytes() const { return int64_t(layers_.size()) * layers_[0].bytes(); }

 private:
  friend class Transformer;
  std::vector<KvLayer> past(int64_t T) const;  // for reading T new tokens of each sequence
  KvCache(const Tensor& like, int64_t layers, const Shape& shape, int64_t group);

  std::vector<Tensor> layers_;  // KvLayer::kv of each layer
  int64_t group_;               // heads of queries per head of keys and values
  int64_t length_ = 0;
};

}  // namespace gradus
