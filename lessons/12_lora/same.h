// (a) What adapters do to the function that a model computes: at first nothing, and merged the same.
#pragma once
#include <ostream>

#include "lessons/12_lora/adapt.h"

namespace gradus {

// On the current context's device, adapters of rank 2 on all layers of the base: the logits before the first
// step, the gradients of A and B there; after some steps those with the adapters beside and in the weights.
void same_function(const TransformerConfig& config, const Weights& base, uint64_t seed, Report& report);

// The example on the page: a matrix (2, 3) with an adapter of rank 1.
void lora_by_hand(std::ostream& out);

}  // namespace gradus
