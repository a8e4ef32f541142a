// The word that was probably meant, for "did you mean".
#pragma once
#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradus {

// How many letters must be changed, added or removed to turn one word into the other (Levenshtein 1966).
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // row[j]: from the letters of a so far to the first j of b
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The nearest word of `known`, which is not empty; on a tie the first.
inline std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  return *std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(a, word) < edit_distance(b, word);
  });
}

}  // namespace gradus
