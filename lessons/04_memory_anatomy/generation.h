// (f) The memory of using a model: keys and values that are kept for the next token, and the beams of a
// search.
#pragma once
#include "src/nn/transformer.h"
#include "src/train/lesson.h"

namespace gradus {

// Continues a prompt by greedy search and by beam search, each in a memory of its own: bytes of the cache a
// token and a beam, the formula's and the measured, and the peak.
void generation_table(const Lesson& lesson, const TransformerConfig& model, Report& report);

}  // namespace gradus
