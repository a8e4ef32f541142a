// Context parallelism: ranks share the tokens of each sequence out, and have all weights. Attention alone
// needs the other ranks' tokens (ring_attention.h); gradients are added up as in data parallelism.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// From now on the model computes on the tokens of this rank. Not possible, with a sentence: dropout, whose
// masks would be others than on one device; token types; an output head for the first token.
void share_context(Comm& ranks, Transformer& model);

// Of ids (B,T) the tokens of this rank, (B, T / ranks): its two chunks (ring_attention.h).
Tensor own_tokens(Comm& ranks, const Tensor& ids);

}  // namespace gradus
