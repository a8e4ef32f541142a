// Writing files of byte pairs, as GPT-2 published them and as Hugging Face's tokenizers writes them.
#include <nlohmann/json.hpp>

#include "src/core/json.h"
#include "src/data/byte_pairs.h"

namespace gradus {

static bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// The printable bytes, then the others, which have consecutive characters from U+0100 on.
const std::array<uint8_t, 256>& byte_order() {
  static const std::array<uint8_t, 256> order = [] {
    std::array<uint8_t, 256> bytes{};
    size_t id = 0;
    for (const bool printable : {true, false})
      for (int b = 0; b < 256; ++b)
        if (is_printable(b) == printable) bytes[id++] = uint8_t(b);
    return bytes;
  }();
  return order;
}

std::string character_of(uint8_t byte) {
  int c = byte;
  if (!is_printable(byte)) {
    c = 256;
    for (int b = 0; b < byte; ++b) c += !is_printable(b);
  }
  if (c < 0x80) return {char(c)};
  return {char(0xC0 | c >> 6), char(0x80 | (c & 0x3F))};  // c is below U+0800
}

static std::string name_of(std::string_view token) {
  std::string name;
  for (const char byte : token) name += character_of(uint8_t(byte));
  return name;
}

static std::string name_of(const BytePairs& pairs, const BytePairs::Pair& merge) {
  return name_of(pairs.tokens()[size_t(merge.first)]) + " " + name_of(pairs.tokens()[size_t(merge.second)]);
}

std::string merges_text(const BytePairs& pairs) {
  std::string text = "#version: 0.2\n";
  for (const BytePairs::Pair& merge : pairs.merges()) text += name_of(pairs, merge) + "\n";
  return text;
}

static Json vocabulary_json(const BytePairs& pairs) {
  Json::object_t vocabulary;  // a vector; appends, because insertion by name searches all of it
  for (const std::string& token : pairs.tokens()) vocabulary.push_back({name_of(token), vocabulary.size()});
  return vocabulary;
}

std::string vocabulary_text(const BytePairs& pairs) { return json_text(vocabulary_json(pairs)); }

std::string tokenizer_text(const BytePairs& pairs) {
  const Json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json merges = Json::array();
  for (const BytePairs::Pair& merge : pairs.merges()) merges.push_back(name_of(pairs, merge));
  const Json model{{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"vocab", vocabulary_json(pairs)},
                   {"merges", std::move(merges)}};
  return json_text({{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", Json::array()},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", byte_level},
                    {"post_processor", nullptr},
                    {"decoder", byte_level},
                    {"model", model}});
}

}  // namespace gradus
