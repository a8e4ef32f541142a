// What the tape keeps of a transformer's blocks, and what runs again.
#include <numeric>

#include "src/nn/transformer.h"

namespace gradus {

static Tensor attention_again(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head) {
  return checkpoint(qkv,
                    [=](const Tensor& x) { return attention_plain(x, heads, mask, dropout, first_head); });
}

Tensor Transformer::through_segments(Tensor x) const {
  const auto L = int64_t(blocks.size());
  if (from_the_start) return up_to_block(L, x);
  const int64_t covered = std::accumulate(segments.begin(), segments.end(), int64_t(0),
                                          [](int64_t sum, const BlockSegment& s) { return sum + s.blocks; });
  check(covered == L, "transformer: the segments have ", covered, " blocks, the model has ", L);
  int64_t at = 0;
  for (const BlockSegment& s : segments) {
    TransformerConfig c = config;
    if (s.keep == Keep::LessAttention && c.attention == attention_plain) c.attention = attention_again;
    const auto run = [this, at, s, c](Tensor h) {
      for (int64_t l = at; l < at + s.blocks; ++l) h = blocks[size_t(l)](h, c);
      return h;
    };
    x = s.keep == Keep::Input ? checkpoint(x, run) : run(x);
    at += s.blocks;
  }
  return x;
}

// Of blocks 0 to l - 1: segments within each other, all of which begin with x.
Tensor Transformer::up_to_block(int64_t l, const Tensor& x) const {
  if (l == 0) return x;
  return checkpoint(
      x, [=, this](const Tensor& start) { return blocks[size_t(l - 1)](up_to_block(l - 1, start), config); });
}

}  // namespace gradus
