// What the page says of saved tensors, as a formula.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

// Bytes that the tape saves in one block for B sequences of T tokens: GPT-2's block with attention_plain.
// Dropout saves nothing: its mask is drawn again. Each layernorm saves two fp32 statistics a token.
int64_t saved_by_a_layer(const TransformerConfig& config, int64_t B, int64_t T);

}  // namespace gradus
