// (a) How adapters change the logits of a model: not at all at first, and not by merging them.
#pragma once
#include <ostream>

#include "src/nn/transformer.h"
#include "src/train/report.h"

namespace gradus {

struct Logits {
  std::vector<double> values;
  int64_t flops;  // of the forward pass
};
struct SameFunction {
  Logits base, adapted, trained, merged;     // base model; with new adapters; after 10 steps; merged then
  std::vector<double> of_a = {}, of_b = {};  // largest gradient of all A and of all B, first and tenth step
};
Logits logits_of(const Transformer& model, const Tensor& ids);
// Of the parameters whose names end so and that train.
double largest_gradient(const Transformer& model, const char* name_end);
void same_function(const SameFunction& measured, Report& report);

// The example on the page: a matrix (2, 3) with an adapter of rank 1.
void lora_by_hand(std::ostream& out);

}  // namespace gradus
