// GPT-2's forward pass with fused operations, by hand: what Transformer::loss computes, in fewer passes over
// memory.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

// model.loss(ids, targets). The model is GPT-2's kind, without dropout and LoRA. `rows`: of logits at a time.
Tensor fused_loss(const Transformer& model, const Tensor& ids, const Tensor& targets, int64_t rows);

}  // namespace gradus
