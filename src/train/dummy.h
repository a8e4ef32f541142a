// Batches of random tokens, for runs in which only memory and time matter.
#pragma once
#include "src/core/rng.h"
#include "src/nn/transformer.h"
#include "src/tensor/profile_range.h"

namespace gradus {

// int32 of the given shape, uniform in [0, below), the same on every device; on meta nothing is drawn.
inline Tensor random_tokens(const Shape& shape, int64_t below, uint64_t seed, std::string_view name) {
  Device& device = current().device;
  if (!device.has_data()) return Tensor(device, shape, DType::I32, Kind::Data, name);
  Rng rng(seed, 0);
  std::vector<int32_t> ids(shape.numel());
  for (int32_t& id : ids) id = int32_t(rng.below(uint64_t(below)));
  return from_host(device, ids, shape, DType::I32, Kind::Data, name);
}

struct DummyBatch {
  Tensor ids, targets;  // (B,T) and (B,T) tokens, or (B) labels
  Tensor types;         // (B,T), for models with token types
  Tensor loss(const Transformer& model) const { return model.loss(ids, targets, types); }
};
inline DummyBatch dummy_batch(const TransformerConfig& c, int64_t B, int64_t T, uint64_t seed = 1) {
  const ProfileRange range("data");
  const bool pooled = c.output_head == OutputHead::Pooled;
  return {random_tokens({B, T}, c.vocab, 3 * seed, "inputs"),
          pooled ? random_tokens({B}, std::max<int64_t>(c.labels, 1), 3 * seed + 1, "targets")
                 : random_tokens({B, T}, c.vocab, 3 * seed + 1, "targets"),
          c.token_types > 0 ? random_tokens({B, T}, c.token_types, 3 * seed + 2, "token types") : Tensor()};
}

}  // namespace gradus
