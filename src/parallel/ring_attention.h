// Attention over ranks that divide the tokens of each sequence: keys and values move around a ring, so each
// rank's queries meet the keys of one rank after the other; the results are merged as in the online softmax
// (Liu et al. 2023, "Ring attention with blockwise transformers for near-infinite context").
//
// With a causal mask the first tokens would need little work. So a sequence is cut into 2 N chunks, and rank
// r has chunks r and 2N-1-r ("zigzag"): then all ranks have equal numbers of pairs of query and key, in every
// step.
#pragma once
#include <vector>

#include "src/ops/ops.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// The positions in the sequence at which a rank's two chunks begin; `count`: tokens per chunk.
struct Zigzag {
  int64_t begin[2], count;
};
Zigzag zigzag(int64_t T, int64_t rank, int64_t ranks);  // an error unless T is a multiple of 2 ranks

// A chunk of a rank's queries, and a chunk of keys that they attend to: to all of them, or, if it is the same
// chunk of the sequence under a causal mask, to the keys up to their own positions.
struct ChunkPair {
  int64_t queries, keys;  // the rank's first or second chunk: 0 or 1
  Mask mask;
};
std::vector<ChunkPair> chunk_pairs(Mask mask, int64_t of_queries, int64_t of_keys, int64_t ranks);
// The number of pairs of query and key in `pairs`, with chunks of `count` tokens.
int64_t count_pairs(const std::vector<ChunkPair>& pairs, int64_t count);

// The attention of a rank's queries to the keys that they have met so far. q and y are (B,T,C), keys
// (2,B,T,C): k, then v; T: the rank's tokens.
struct Attended {
  Tensor q, sum, lse;  // sum: in statistics_dtype; lse (2,B,H,T/2)
  int64_t heads;
  Attended(const Tensor& qkv, int64_t heads);
  void meet(const Tensor& keys, const std::vector<ChunkPair>& pairs);
  Tensor y() const;
};
Tensor keys_of(const Tensor& qkv);
// The gradients, to which each meet() adds: dq (B,T,C) and dkeys (2,B,T,C).
struct AttendedGradient {
  const Tensor &q, &y, &lse, &dy;
  int64_t heads;
  Tensor dq;
  void meet(const Tensor& keys, const std::vector<ChunkPair>& pairs, Tensor& dkeys);
};
Tensor zeros_like(const Tensor& x, std::string_view name);
void put_gradients(const Tensor& dq, const Tensor& dkeys, Out dqkv);

// Attention of this rank's tokens, qkv (B,T,3C), to those of all N ranks: (B,T,C). With n = B T C, a rank
// sends 2 n (N-1) elements in forward. In backward keys and values go around a second time, and their
// gradients with them and back to their rank: 2 n (N-1) + 2 n N. A single rank sends nothing. The tape keeps
// the same tensors as for attention_flash.
Tensor ring_attention(Comm& comm, const Tensor& qkv, int64_t heads, Mask mask);

}  // namespace gradus
