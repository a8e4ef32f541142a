// (f) The memory of text generation: the KV cache, and the beams of a beam search.
#pragma once
#include "src/nn/transformer.h"
#include "src/train/lesson.h"

namespace gradus {

// Continues a prompt by sampling and by beam search, each on its own device. Prints the bytes of one cache by
// formula, the bytes of all caches at the peak, and all allocated bytes.
void generation_table(const Lesson& lesson, const TransformerConfig& model, Report& report);

struct Generation {
  int64_t beams;               // 0: sampling
  int64_t kept_at_peak, peak;  // bytes: of kind activation (the caches), of all kinds
  double seconds;              // per token
};
// `beam_bytes`: the size of one beam's cache.
void check_caches(const std::vector<Generation>& all, int64_t beam_bytes, Report& report);

}  // namespace gradus
