#include "lessons/14_data_loading/by_hand.h"

#include "src/core/table.h"
#include "src/data/tokenizer.h"

namespace gradus {

std::string quoted(std::string_view token) {
  return std::string("'").append(printable(token.substr(0, 24))).append("'");
}

std::string in_tokens(std::string_view text, const BytePairs& pairs) {
  std::string line;
  for (const int32_t id : BytePairEncoder(pairs).encode(text))
    line.append(line.empty() ? "" : "|").append(printable(pairs.tokens()[size_t(id)]));
  return line;
}

void byte_pairs_by_hand(std::ostream& out) {
  constexpr std::string_view kText = "a step stepped, steps stop";
  Table table({"merges", "new token", "text in tokens", "tokens"});
  for (int64_t n = 0; n <= 4; ++n) {
    const BytePairs pairs = BytePairs::learn(kText, n);
    const std::string added = n == 0 ? "" : quoted(pairs.tokens().back());
    table.row({std::to_string(n), added, in_tokens(kText, pairs),
               std::to_string(BytePairEncoder(pairs).encode(kText).size())});
  }
  out << table;
}

}  // namespace gradus
