#include "lessons/04_memory_anatomy/generation.h"

#include <iostream>

#include "src/core/table.h"
#include "src/memory/device_timing.h"
#include "src/nn/generate.h"

namespace gradus {

// By sampling (0 beams), or by beam search.
static Generation generate(const Lesson& lesson, const TransformerConfig& config, int64_t tokens,
                           int64_t beams) {
  LessonContext context(lesson);
  Transformer model(config);
  model.initialize(lesson.seed);
  Rng rng(lesson.seed, 0);
  const double start = seconds_now(context.device);
  if (beams == 0)
    sample(model, {1}, tokens, 1.0, rng);
  else
    beam_search(model, {1}, tokens, beams);
  const double seconds = (seconds_now(context.device) - start) / double(tokens);
  const Usage& peak = context.device.meter().at_peak();
  return {beams, peak[Kind::Activation], peak.allocated(), seconds};
}

void generation_table(const Lesson& lesson, const TransformerConfig& config, Report& report) {
  const int64_t tokens = config.context, token_bytes = kv_bytes_per_token(config);
  std::cout << "\n(f) Text generation, " << tokens << " tokens; KV cache: " << count_text(token_bytes)
            << " bytes per token and beam; beam search copies the cache of all beams after each token\n\n";
  Table table({"decoding", "cache of all beams", "caches at the peak, bytes", "number of caches", "allocated",
               "time per token"});
  std::vector<Generation> all;
  for (const int64_t beams : {0, 1, 2, 4, 8}) {
    const Generation g = all.emplace_back(generate(lesson, config, tokens, beams));
    const int64_t cache = std::max<int64_t>(beams, 1) * tokens * token_bytes;  // of all beams together
    table.row({beams == 0 ? "sampling" : "beam search, beams: " + std::to_string(beams), bytes_text(cache),
               count_text(g.kept_at_peak), number_text(double(g.kept_at_peak) / double(cache)),
               bytes_text(g.peak), current().device.has_data() ? seconds_text(g.seconds) : ""});
  }
  std::cout << table;
  check_caches(all, tokens * token_bytes, report);
}

void check_caches(const std::vector<Generation>& all, int64_t beam_bytes, Report& report) {
  int64_t differing = all.empty();
  for (const Generation& g : all) {
    const int64_t caches = g.beams == 0 ? 1 : 2;  // while beams are reordered: the old and the new cache
    differing += g.kept_at_peak != caches * std::max<int64_t>(g.beams, 1) * beam_bytes;
  }
  report.check_equal("rows of (f) whose number of caches is not 1 (sampling), 2 (beams)", differing, 0);
}

}  // namespace gradus
