// (a) What adapters do to the function that a model computes: at first nothing, and merged the same.
#pragma once
#include <ostream>

#include "lessons/12_lora/adapt.h"

namespace gradus {

// The logits of a batch, and what they took.
struct Logits {
  std::vector<double> values;
  int64_t flops;
};
struct SameFunction {
  Logits base, adapted, trained, merged;  // without adapters; with; after some steps; and merged then
  std::vector<double> of_a, of_b;         // the largest gradient of all A and of all B, step by step
};
// On the current context's device, which has data: adapters of rank 2 on all layers of the base, 10 steps.
SameFunction measure_same_function(const TransformerConfig& config, const Weights& base, uint64_t seed);
void same_function(const SameFunction& measured, Report& report);

// The example on the page: a matrix (2, 3) with an adapter of rank 1.
void lora_by_hand(std::ostream& out);

}  // namespace gradus
