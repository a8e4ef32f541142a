// Context parallelism: ranks divide the tokens of each sequence; each rank has all weights. Only attention
// needs the other ranks' tokens (ring_attention.h); gradients are summed as in data parallelism.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"
#include "src/train/accumulate.h"

namespace gradus {

// From now on the model computes on the tokens of this rank. Rejected with an Error: dropout, whose masks
// would differ from those on one device; rotary positions; token types; an output head for the first token;
// heads that share keys and values; experts, whose places are counted per whole sequence. The weights may be
// sharded (TensorParallel, before or after).
void share_context(Comm& ranks, Transformer& model);

// A rank's two chunks (ring_attention.h) of each sequence of a batch.
TextBatch chunks_of(const TextBatch& batch, int64_t rank, int64_t ranks);
// The positions of these tokens in their sequences of T tokens, int32 (B, T / ranks).
Tensor places_of_chunks(int64_t B, int64_t T, int64_t rank, int64_t ranks);

}  // namespace gradus
