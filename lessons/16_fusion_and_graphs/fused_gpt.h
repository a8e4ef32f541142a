// The forward pass of GPT-2, fused by hand: the same loss as Transformer::loss, with fewer passes over
// memory.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

// model.loss(ids, targets), for a GPT-2 without dropout and LoRA. `rows`: rows of logits per chunk.
Tensor fused_loss(const Transformer& model, const Tensor& ids, const Tensor& targets, int64_t rows);

}  // namespace gradus
