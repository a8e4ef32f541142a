// Common parts of the tests of byte pairs.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/core/rng.h"
#include "src/data/byte_pairs.h"

namespace gradus {

using Ids = std::vector<int32_t>;

inline std::string random_text(Rng& rng, size_t bytes, std::string_view alphabet) {
  std::string text(bytes, ' ');
  for (char& c : text) c = alphabet[rng.below(alphabet.size())];
  return text;
}

// The 256 bytes as tokens, in the order of the files, and one more token for each of these merges, which are
// given by the bytes of their parts.
inline BytePairs byte_pairs_of(const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> tokens;
  for (const uint8_t byte : byte_order()) tokens.emplace_back(1, char(byte));
  std::vector<BytePairs::Pair> pairs;
  const auto id = [&](const std::string& bytes) {
    return int32_t(std::find(tokens.begin(), tokens.end(), bytes) - tokens.begin());
  };
  for (const auto& [left, right] : merges) {
    pairs.emplace_back(id(left), id(right));
    if (size_t(id(left + right)) == tokens.size()) tokens.push_back(left + right);
  }
  return BytePairs(tokens, pairs);
}

inline void expect_same(const BytePairs& a, const BytePairs& b) {
  EXPECT_EQ(a.tokens(), b.tokens());
  EXPECT_EQ(a.merges(), b.merges());
}

// Tokens as texts with | between them, to make failures readable.
inline std::string parts_of(const BytePairs& pairs, const Ids& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : "|") + pairs.tokens()[size_t(id)];
  return text;
}

}  // namespace gradus
