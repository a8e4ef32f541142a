// Compares a GPT trained on tokens with GPTs trained on bytes, by their bits per byte.
#pragma once
#include "lessons/14_data_loading/reading.h"
#include "src/data/loader.h"
#include "src/nn/transformer_config.h"

namespace gradus {

struct TextModel {  // a model's training text, and its number of steps
  std::string name;
  Tokens tokens;
  double bytes_per_token;  // of the held-out text
  int64_t steps;
};
// Three models: on bytes with `steps` steps, on bytes with as many steps as read the same amount of text, and
// on tokens with `steps` steps.
std::vector<TextModel> text_models(const LessonText& text, const BytePairs& pairs, int64_t steps);

// Losses in nats per token cannot be compared between vocabularies, but the probability of the whole text
// can: bits per byte = nats per token / (ln 2 * bytes per token).
double bits_per_byte(double nats_per_token, double bytes_per_token);

// rows: one per model, with its name and held-out loss. `skip`: why the models were trained too briefly to be
// compared.
void report_bits(const std::vector<TextModel>& models, const std::vector<ReportRow>& rows,
                 std::optional<double> floor, const std::string& skip, Report& report);

}  // namespace gradus
