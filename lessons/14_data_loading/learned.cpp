#include "lessons/14_data_loading/learned.h"

#include <algorithm>
#include <charconv>
#include <iostream>
#include <set>

#include "lessons/14_data_loading/by_hand.h"
#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/io/atomic_file.h"

namespace gradus {

constexpr int64_t kMostTokens = 1 << 20;

BytePairs byte_pairs_for(const LessonText& text, const std::string& tokens) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(tokens.data(), tokens.data() + tokens.size(), n);
  if (error == std::errc::invalid_argument || *end) return load_byte_pairs(tokens);
  if (n < 256 || n > kMostTokens)
    throw BadArguments("--tokens=" + tokens + ": a vocabulary has 256 to " + std::to_string(kMostTokens) +
                       " tokens");
  BytePairs pairs = BytePairs::learn(text.train(), n - 256);
  text.file->check_whole();
  if (pairs.vocabulary() < n)
    std::cout << "vocabulary of " << pairs.vocabulary() << " tokens instead of " << n
              << ", because no pair of tokens occurs twice any more\n";
  return pairs;
}

void save_byte_pairs(const BytePairs& pairs, const std::string& folder) {
  write_file(folder + "/merges.txt", merges_text(pairs));
  write_file(folder + "/vocab.json", vocabulary_text(pairs));
  write_file(folder + "/tokenizer.json", tokenizer_text(pairs));
}

static void print_merges(const BytePairs& pairs) {
  Table table({"merge", "left token", "right token", "new token"});
  const int64_t n = int64_t(pairs.merges().size());
  for (const int64_t merge : std::set<int64_t>{1, 2, 3, n / 8, n / 4, n}) {
    if (merge < 1 || merge > n) continue;
    const auto [left, right] = pairs.merges()[size_t(merge - 1)];
    const std::string &a = pairs.tokens()[size_t(left)], &b = pairs.tokens()[size_t(right)];
    table.row({std::to_string(merge), quoted(a), quoted(b), quoted(a + b)});
  }
  std::cout << table;
}

void report_byte_pairs(const BytePairs& pairs, const LessonText& text, Report& report) {
  const std::string_view held_out = text.held_out(),
                         first_line = held_out.substr(0, std::min<size_t>(held_out.find('\n'), 80));
  std::vector<int32_t> ids;
  const Timing encoding = measure([&] { ids = BytePairEncoder(pairs).encode(held_out); });
  std::string decoded;
  const Timing decoding = measure([&] { decoded = pairs.decode(ids); });
  const auto speed = [&](const Timing& t) {
    return number_text(double(held_out.size()) / t.median * 1e-6) + " MB/s";
  };
  std::cout << "\n(a) Byte-pair encoding: " << count_text(pairs.vocabulary())
            << " tokens, made of 256 bytes and " << count_text(int64_t(pairs.merges().size()))
            << " merges\n\n";
  print_merges(pairs);
  std::cout << "\nFirst line of the held-out text in tokens: " << in_tokens(first_line, pairs)
            << "\nHeld-out text: " << number_text(double(held_out.size()) / double(ids.size()))
            << " bytes per token; encoding " << speed(encoding) << ", decoding " << speed(decoding) << "\n";
  check_decoded(decoded, held_out, report);
}

void check_decoded(std::string_view decoded, std::string_view held_out, Report& report) {
  report.check_equal("held-out texts that decode differently", decoded == held_out ? 0 : 1, 0);
}

}  // namespace gradus
