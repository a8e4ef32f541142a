// Attention over ranks that share the tokens of each sequence out: keys and values go round in a ring, and
// each rank's queries meet those of one rank after the other; what they got is merged as in the online
// softmax (Liu et al. 2023, "Ring attention with blockwise transformers for near-infinite context").
//
// With a causal mask the first tokens would have little to do. So a sequence is cut into 2 N chunks, and rank
// r has chunks r and 2N-1-r ("zigzag"): then all ranks meet as many pairs of query and key, at every step.
#pragma once
#include <vector>

#include "src/ops/ops.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// Where the two chunks of a rank begin, in the sequence; `count` tokens each.
struct Zigzag {
  int64_t begin[2], count;
};
Zigzag zigzag(int64_t T, int64_t rank, int64_t ranks);  // an error unless T is a multiple of 2 ranks

// A rank's chunk of queries that meets another's chunk of keys: all of them, or, of its own, the earlier
// ones.
struct ChunkPair {
  int64_t queries, keys;  // 0 or 1
  Mask mask;
};
std::vector<ChunkPair> chunk_pairs(Mask mask, int64_t of_queries, int64_t of_keys, int64_t ranks);
// The pairs of query and key in them, with chunks of `count` tokens.
int64_t count_pairs(const std::vector<ChunkPair>& pairs, int64_t count);

// What a rank's queries have got so far. q and y are (B,T,C), keys (2,B,T,C): k, then v; T tokens of the
// rank.
struct Attended {
  Tensor q, sum, lse;  // sum: of the dtype of statistics; lse (2,B,H,T/2)
  int64_t heads;
  Attended(const Tensor& qkv, int64_t heads);
  void meet(const Tensor& keys, const std::vector<ChunkPair>& pairs);
  Tensor y() const;
};
Tensor keys_of(const Tensor& qkv);
// The gradients, to which each meeting adds: dq (B,T,C) and dkeys (2,B,T,C).
struct AttendedGradient {
  const Tensor &q, &y, &lse, &dy;
  int64_t heads;
  Tensor dq;
  void meet(const Tensor& keys, const std::vector<ChunkPair>& pairs, Tensor& dkeys);
};
Tensor zeros_like(const Tensor& x, std::string_view name);
void put_gradients(const Tensor& dq, const Tensor& dkeys, Out dqkv);

// Attention of qkv (B,T,3C), of this rank's tokens, to those of all ranks: (B,T,C). Of n = B T C elements on
// each of N ranks, one sends 2 n (N-1) in forward; in backward the keys and values go round once more, and
// their gradients with them and home: 2 n (N-1) + 2 n N; of one rank nothing. The tape keeps what
// attention_flash does.
Tensor ring_attention(Comm& comm, const Tensor& qkv, int64_t heads, Mask mask);

}  // namespace gradus
