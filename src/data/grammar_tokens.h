// Tokens for grammar.cpp and grammar_parse.cpp: a token is a word or a single punctuation mark.
#pragma once
#include <cctype>
#include <string_view>

namespace gradus {

inline bool is_word_byte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '\'' || c == '-';
}
inline bool is_word(std::string_view token) { return !token.empty() && is_word_byte(token[0]); }

// The token that begins at byte `at`: the longest word, or one other byte; empty at the end of the text.
inline std::string_view token_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && is_word_byte(text[end])) ++end;
  if (end == at && at < text.size()) ++end;
  return text.substr(std::min(at, text.size()), end - at);
}

}  // namespace gradus
