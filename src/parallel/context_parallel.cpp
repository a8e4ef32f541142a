#include "src/parallel/context_parallel.h"

#include "src/parallel/ring_attention.h"
#include "src/tensor/context.h"

namespace gradus {

struct RingVariant : AttentionVariant {
  Comm& ranks;
  explicit RingVariant(Comm& ranks) : ranks(ranks) {}
  Tensor operator()(const Tensor& qkv, const TransformerConfig& c) const override {
    return ring_attention(ranks, qkv, c.heads, c.mask);
  }
};

// int32 (B, 2 count), in each row the numbers of both chunks.
static Tensor in_chunks(const Zigzag& z, int64_t B, const std::function<int32_t(int64_t b, int64_t t)>& value,
                        const char* name) {
  const Shape shape{B, 2 * z.count};
  Device& device = current().device;
  if (!device.has_data()) return Tensor(device, shape, DType::I32, Kind::Data, name);
  std::vector<int32_t> all;
  for (int64_t b = 0; b < B; ++b)
    for (const int64_t begin : z.begin)
      for (int64_t t = begin; t < begin + z.count; ++t) all.push_back(value(b, t));
  return from_host(device, all, shape, DType::I32, Kind::Data, name);
}

struct EndsOfContext : ModelEnds {
  Comm& ranks;
  explicit EndsOfContext(Comm& ranks) : ranks(ranks) {}
  Tensor positions(const Tensor& x, const Tensor& table, int64_t) const override {
    const Zigzag z = zigzag(ranks.size() * x.shape()[1], ranks.rank(), ranks.size());
    const auto place = [](int64_t, int64_t t) { return int32_t(t); };
    return add(x, embedding(table, in_chunks(z, x.shape()[0], place, "positions")));
  }
};

void share_context(Comm& ranks, Transformer& model) {
  const TransformerConfig& c = model.config;
  check(c.dropout == 0, "context parallel: dropout is ", c.dropout, "; it must be 0");
  check(c.rotary == 0 && c.token_types == 0 && c.output_head != OutputHead::Pooled,
        "context parallel: the model has rotary positions, token types or a pooled head; it must be like "
        "GPT-2");
  for (TransformerBlock& b : model.blocks) b.attention = std::make_unique<RingVariant>(ranks);
  model.ends = std::make_unique<EndsOfContext>(ranks);
}

Tensor own_tokens(Comm& ranks, const Tensor& ids) {
  check(ids.shape().rank() == 2, "own_tokens: ids are ", ids.shape(), "; they must be (B,T)");
  const int64_t T = ids.shape()[1];
  const Zigzag z = zigzag(T, ranks.rank(), ranks.size());
  const std::vector<int32_t> all = ids.device().has_data() ? to_host<int32_t>(ids) : std::vector<int32_t>();
  return in_chunks(
      z, ids.shape()[0], [&](int64_t b, int64_t t) { return all[size_t(b * T + t)]; }, "own tokens");
}

}  // namespace gradus
