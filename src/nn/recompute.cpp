// Which tensors of a transformer's blocks the tape saves, and which it recomputes.
#include <numeric>

#include "src/nn/transformer.h"

namespace gradus {

static Tensor attention_again(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head) {
  return checkpoint(qkv,
                    [=](const Tensor& x) { return attention_plain(x, heads, mask, dropout, first_head); });
}

Tensor Transformer::through_segments(Tensor x, BlockRange own) const {
  check(config.experts == 0, "transformer: blocks of a mixture are not recomputed, because the balance loss ",
        "needs what their routers did in the forward pass; leave segments empty");
  if (from_the_start) return up_to_block(own.first, own.end, x);
  const auto L = int64_t(blocks.size());
  const int64_t covered = std::accumulate(segments.begin(), segments.end(), int64_t(0),
                                          [](int64_t sum, const BlockSegment& s) { return sum + s.blocks; });
  check(covered == L, "transformer: the segments have ", covered, " blocks, the model has ", L);
  int64_t begin = 0;
  for (const BlockSegment& s : segments) {
    const int64_t at = begin, end = begin += s.blocks;
    if (end <= own.first || at >= own.end) continue;
    check(at >= own.first && end <= own.end, "transformer: a segment has blocks ", at, " to ", end,
          " of this part, of which ", own.first, " to ", own.end,
          " are a range; a segment must lie within a range");
    TransformerConfig c = config;
    if (s.keep == Keep::LessAttention && c.attention == attention_plain) c.attention = attention_again;
    const auto run = [this, at, end, c](Tensor h) {
      for (int64_t l = at; l < end; ++l) h = blocks[size_t(l)](h, c);
      return h;
    };
    x = s.keep == Keep::Input ? checkpoint(x, run) : run(x);
  }
  return x;
}

// Runs blocks `first` to l - 1 as nested segments, each of which begins with x.
Tensor Transformer::up_to_block(int64_t first, int64_t l, const Tensor& x) const {
  if (l == first) return x;
  return checkpoint(x, [=, this](const Tensor& start) {
    return blocks[size_t(l - 1)](up_to_block(first, l - 1, start), config);
  });
}

}  // namespace gradus
