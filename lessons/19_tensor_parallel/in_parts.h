// One device that adds the partial products of t ranks in rank order: what tensor parallelism must equal to
// the bit. All else is as in ordinary training.
#pragma once
#include "src/nn/transformer.h"

namespace gradus {

// From now on the model adds t partial products where t ranks would.
void add_in_parts(Transformer& model, int64_t t);

}  // namespace gradus
