// (f) The memory of using a model: keys and values that are kept for the next token, and the beams of a
// search.
#pragma once
#include "src/nn/transformer.h"
#include "src/train/lesson.h"

namespace gradus {

// Continues a prompt by sampling and by beam search, each on a device of its own: the bytes of the cache by
// formula, those that are held at the peak, and what is allocated in all.
void generation_table(const Lesson& lesson, const TransformerConfig& model, Report& report);

struct Generation {
  int64_t beams;               // 0: by drawing each token
  int64_t kept_at_peak, peak;  // bytes: of kind activation, the caches; of all kinds
  double seconds;              // a token
};
// `beam_bytes`: the cache of one beam at the end.
void check_caches(const std::vector<Generation>& all, int64_t beam_bytes, Report& report);

}  // namespace gradus
