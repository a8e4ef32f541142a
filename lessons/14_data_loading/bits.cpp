#include "lessons/14_data_loading/bits.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numbers>

#include "src/core/table.h"
#include "src/data/tokenizer.h"

namespace gradus {

std::vector<TextModel> text_models(const LessonText& text, const BytePairs& pairs, int64_t steps) {
  const std::vector<int32_t> bytes = ByteTokenizer::encode({text.file->data(), size_t(text.file->bytes())});
  const Tokens of_bytes(bytes, text.split, ByteTokenizer::kVocabulary);
  BytePairEncoder encoder(pairs);
  std::vector<int32_t> ids = encoder.encode(text.train());
  const int64_t split = int64_t(ids.size());
  encoder.encode(text.held_out(), SIZE_MAX, ids);
  text.file->check_whole();
  const double per_token = double(text.held_out().size()) / double(int64_t(ids.size()) - split);
  const Tokens of_pairs(ids, split, pairs.vocabulary());
  return {{"bytes", of_bytes, 1, steps},
          {"bytes, same amount of text", of_bytes, 1, int64_t(std::lround(double(steps) * per_token))},
          {"tokens", of_pairs, per_token, steps}};
}

double bits_per_byte(double nats_per_token, double bytes_per_token) {
  return nats_per_token / std::numbers::ln2 / bytes_per_token;
}

void report_bits(const std::vector<TextModel>& models, const std::vector<ReportRow>& rows,
                 std::optional<double> floor, const std::string& skip, Report& report) {
  Table table({"GPT trained on", "steps", "tokens/s", "nats per token", "bytes per token", "bits per byte"});
  std::vector<double> bits;
  for (size_t i = 0; i < models.size(); ++i) {
    const TextModel& m = models[i];
    bits.push_back(bits_per_byte(rows[i].loss_held_out.value_or(NAN), m.bytes_per_token));
    table.row({m.name, count_text(m.steps), number_text(rows[i].tokens_per_s.value_or(NAN)),
               number_text(rows[i].loss_held_out.value_or(NAN)), number_text(m.bytes_per_token),
               number_text(bits[i])});
    report.row("") = rows[i];
  }
  std::cout << "\n(d) Held-out loss, in nats per token and in bits per byte\n\n" << table;
  if (floor)
    std::cout << "Entropy of the grammar on the held-out text: " << number_text(*floor) << " bits per byte\n";
  const double fewest = *std::min_element(bits.begin(), bits.end());
  if (floor)
    report.check_at_least("bits per byte: best model / entropy of the grammar", fewest / *floor, 0.99);
  report.check_at_most("bits per byte: tokens / bytes, same amount of text", bits[2] / bits[1], 1, skip);
}

}  // namespace gradus
