// What the page of lesson 04 says of parameters and of saved tensors, as formulas.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

// Of weight, master copy, gradient and `states` optimizer states (AdamW: 2, momentum: 1, plain SGD: 0).
int64_t bytes_per_parameter(const Precision& precision, int states);

// Bytes that the tape saves in one block for B sequences of T tokens: GPT-2's block with attention_plain.
// Dropout saves nothing: its mask is drawn again. Each layernorm saves two fp32 statistics a token.
int64_t saved_by_a_layer(const TransformerConfig& config, int64_t B, int64_t T);

}  // namespace gradus
