#pragma once
#include "lessons/07_accumulation/accumulate.h"
#include "src/train/report.h"

namespace gradus {

// What the usual mistakes make of the gradient of a batch in micro-batches, each beside the right one: how
// many times as large, and |wrong - right| / |right|. A check each that it is seen. The weights are moved by
// it.
void mistakes_table(Transformer& model, const TextBatch& batch, const Split& split, Report& report);

}  // namespace gradus
