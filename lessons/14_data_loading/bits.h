// A GPT on tokens and one on bytes, compared by what they need to know of each byte of text.
#pragma once
#include "lessons/14_data_loading/reading.h"
#include "src/data/loader.h"
#include "src/nn/transformer_config.h"

namespace gradus {

struct TextModel {  // what one is trained on, and for how long
  std::string name;
  Tokens tokens;
  double bytes_per_token;  // of the held-out text
  int64_t steps;
};
// On bytes, for as many steps; on bytes, for as much text; on tokens.
std::vector<TextModel> text_models(const LessonText& text, const BytePairs& pairs, int64_t steps);

// A loss in nats per token says nothing of another vocabulary's. A model's probability of the whole text
// does: bits per byte = nats per token / (ln 2 * bytes per token).
double bits_per_byte(double nats_per_token, double bytes_per_token);

// rows: of each model, with its name and held-out loss. `skip`: why they were trained too little to be
// compared.
void report_bits(const std::vector<TextModel>& models, const std::vector<ReportRow>& rows,
                 std::optional<double> floor, const std::string& skip, Report& report);

}  // namespace gradus
