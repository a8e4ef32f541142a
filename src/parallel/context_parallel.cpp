#include "src/parallel/context_parallel.h"

#include "src/parallel/ring_attention.h"
#include "src/tensor/context.h"

namespace gradus {

struct RingVariant : AttentionVariant {
  Comm& ranks;
  explicit RingVariant(Comm& ranks) : ranks(ranks) {}
  Tensor operator()(const Tensor& qkv, const TransformerConfig& c) const override {
    const int64_t heads = qkv.last() / (3 * (c.channels / c.heads));  // of this rank
    return ring_attention(ranks, qkv, heads, c.mask);
  }
};

static std::vector<int32_t> chunks_of(const std::vector<int32_t>& rows, int64_t T, const Zigzag& z) {
  std::vector<int32_t> all;
  for (int64_t first = 0; first < int64_t(rows.size()); first += T)
    for (const int64_t begin : z.begin)
      all.insert(all.end(), rows.begin() + first + begin, rows.begin() + first + begin + z.count);
  return all;
}

TextBatch chunks_of(const TextBatch& batch, int64_t rank, int64_t ranks) {
  const Zigzag z = zigzag(batch.T, rank, ranks);
  return {batch.sequences, 2 * z.count, chunks_of(batch.ids, batch.T, z),
          chunks_of(batch.targets, batch.T, z), batch.first_sample};
}

Tensor places_of_chunks(int64_t B, int64_t T, int64_t rank, int64_t ranks) {
  std::vector<int32_t> places(size_t(B * T));
  for (int64_t i = 0; i < B * T; ++i) places[size_t(i)] = int32_t(i % T);
  return on_device(chunks_of(places, T, zigzag(T, rank, ranks)), T / ranks, "places");
}

struct PositionsOfChunks : PositionVariant {
  Comm& ranks;
  explicit PositionsOfChunks(Comm& ranks) : ranks(ranks) {}
  Tensor operator()(const Tensor& x, const Tensor& table) const override {
    const int64_t N = ranks.size();
    check(N * x.shape()[1] <= table.shape()[0], "context parallel: ", N, " parts of ", x.shape()[1],
          " tokens; the model has ", table.shape()[0], " positions");
    return add(x, embedding(table, places_of_chunks(x.shape()[0], N * x.shape()[1], ranks.rank(), N)));
  }
};

void share_context(Comm& ranks, Transformer& model) {
  const TransformerConfig& c = model.config;
  check(c.dropout == 0, "context parallel: dropout is ", c.dropout, "; it must be 0");
  check(c.rotary == 0 && c.token_types == 0 && c.output_head != OutputHead::Pooled,
        "context parallel: the model has rotary positions, token types or a pooled head; it must be like "
        "GPT-2");
  check(c.heads_per_kv() == 1 && c.experts == 0,
        "context parallel: the model has heads that share keys and values, or experts, whose places are ",
        "counted per whole sequence; set kv_heads and experts to 0");
  for (TransformerBlock& b : model.blocks) b.attention = std::make_unique<RingVariant>(ranks);
  model.positions = std::make_unique<PositionsOfChunks>(ranks);
}

}  // namespace gradus
