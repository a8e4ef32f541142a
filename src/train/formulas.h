// The formulas on the page of lesson 04: bytes per parameter, and bytes of saved tensors.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

// Bytes of weight, master copy, gradient and `states` optimizer states (AdamW: 2, momentum: 1, plain SGD: 0).
int64_t bytes_per_parameter(const Precision& precision, int states);

// Bytes that the tape saves for backward in one transformer block, for B sequences of T tokens: GPT-2's block
// with attention_plain. Dropout saves nothing, because its mask is recomputed. Each layernorm saves two fp32
// statistics per token.
int64_t saved_by_a_layer(const TransformerConfig& config, int64_t B, int64_t T);

}  // namespace gradus
