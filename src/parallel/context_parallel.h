// Context parallelism: ranks share the tokens of each sequence out, and have all weights. Attention alone
// needs the other ranks' tokens (ring_attention.h); gradients are added up as in data parallelism.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"
#include "src/train/accumulate.h"

namespace gradus {

// From now on the model computes on the tokens of this rank. Not possible, with a sentence: dropout, whose
// masks would be others than on one device; rotary positions; token types; an output head for the first
// token; heads that share keys and values; experts, whose places are counted per whole sequence. Weights may
// be shared out (TensorParallel, before or after).
void share_context(Comm& ranks, Transformer& model);

// Of each sequence of a batch, both chunks of a rank (ring_attention.h).
TextBatch chunks_of(const TextBatch& batch, int64_t rank, int64_t ranks);
// The places of these tokens in their sequences of T, int32 (B, T / ranks).
Tensor places_of_chunks(int64_t B, int64_t T, int64_t rank, int64_t ranks);

}  // namespace gradus
