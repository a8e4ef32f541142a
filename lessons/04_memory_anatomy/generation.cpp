#include "lessons/04_memory_anatomy/generation.h"

#include <iostream>

#include "src/core/table.h"
#include "src/memory/device_timing.h"
#include "src/nn/generate.h"

namespace gradus {

struct Generation {
  int64_t kept_at_peak;  // of kind activation: the caches
  int64_t peak;
  double seconds;  // a token
};

// By drawing each token (0 beams), or by beam search.
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
  return {peak[Kind::Activation], peak.allocated(), seconds};
}

void generation_table(const Lesson& lesson, const TransformerConfig& config, Report& report) {
  const int64_t tokens = config.context, token_bytes = kv_bytes_per_token(config);
  std::cout << "\n(f) Using the model: " << tokens << " tokens; each costs a beam 2 L C values, "
            << count_text(token_bytes) << " bytes\n\n";
  Table table({"beams", "cache", "at the peak", "caches", "allocated", "a token"});
  int64_t differing = 0;
  for (const int64_t beams : {0, 1, 2, 4, 8}) {
    const Generation g = generate(lesson, config, tokens, beams);
    const int64_t cache = std::max<int64_t>(beams, 1) * tokens * token_bytes;  // of all beams
    const int64_t caches = beams == 0 ? 1 : 2;  // while beams are reordered, the old one and the new one
    differing += g.kept_at_peak != caches * cache;
    table.row({beams == 0 ? "sampling" : std::to_string(beams), bytes_text(cache), count_text(g.kept_at_peak),
               number_text(double(g.kept_at_peak) / double(cache)), bytes_text(g.peak),
               current().device.has_data() ? seconds_text(g.seconds) : ""});
  }
  std::cout << table;
  report.check_equal("caches at the peak: sampling 1, beams 2; rows that differ", differing, 0);

  Table models({"keys and values of", "a token", "the whole context", "8 beams"});
  for (const char* name : {"gpt2", "gpt2-xl", "polyglot-ko-1.3b"}) {
    TransformerConfig c = transformer_config(name);
    c.precision = precision_recipe("half");
    const int64_t bytes = kv_bytes_per_token(c);
    models.row({std::string(name) + " in 16 bits", bytes_text(bytes), bytes_text(bytes * c.context),
                bytes_text(8 * bytes * c.context)});
  }
  std::cout << "\n" << models;
}

}  // namespace gradus
