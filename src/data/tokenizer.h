// The byte-level tokenizer: a token is a byte. Nothing to train, nothing to download, every text can be
// encoded, and a loss in nats per token is a loss in nats per byte.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/check.h"

namespace gradus {

struct ByteTokenizer {
  static constexpr int64_t kVocabulary = 256;
  static constexpr int32_t kEndOfDocument = 0;  // see corpus.h

  static std::vector<int32_t> encode(std::string_view text) {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (char c : text) tokens.push_back(uint8_t(c));
    return tokens;
  }
  static std::string decode(const std::vector<int32_t>& tokens) {
    std::string text;
    for (int32_t t : tokens) {
      check(t >= 0 && t < kVocabulary, "decode: token ", t, " is not a byte; tokens are 0 to 255");
      text += char(t);
    }
    return text;
  }
};

// Text as a terminal can show it: newlines, tabs and well-formed UTF-8 stay; every other byte that is not
// printable ASCII becomes \xNN (a model may produce any bytes, and control codes would garble the screen).
std::string printable(std::string_view text);

}  // namespace gradus
