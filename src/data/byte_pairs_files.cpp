// Files of byte pairs, as GPT-2 published them and as Hugging Face's tokenizers write them.
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "kernels/check.h"
#include "src/core/input_file.h"
#include "src/core/json.h"
#include "src/data/byte_pairs.h"

namespace gradus {

static bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

const uint8_t* byte_order() {
  static const std::array<uint8_t, 256> order = [] {
    std::array<uint8_t, 256> bytes{};
    size_t id = 0;
    for (const bool printable : {true, false})
      for (int b = 0; b < 256; ++b)
        if (is_printable(b) == printable) bytes[id++] = uint8_t(b);
    return bytes;
  }();
  return order.data();
}

// Below U+0800, so of one or two bytes.
static int code_point_of(uint8_t byte) {
  if (is_printable(byte)) return byte;
  int before = 0;  // bytes that have no character of their own
  for (int b = 0; b < byte; ++b) before += !is_printable(b);
  return 256 + before;
}

std::string character_of(uint8_t byte) {
  const int c = code_point_of(byte);
  if (c < 0x80) return {char(c)};
  return {char(0xC0 | c >> 6), char(0x80 | (c & 0x3F))};
}

static std::string written(std::string_view bytes) {
  std::string text;
  for (const char b : bytes) text += character_of(uint8_t(b));
  return text;
}

// The bytes that a name stands for.
static std::string bytes_of(std::string_view name, const std::string& file) {
  static const std::unordered_map<std::string, char> bytes = [] {
    std::unordered_map<std::string, char> of;
    for (int b = 0; b < 256; ++b) of[character_of(uint8_t(b))] = char(b);
    return of;
  }();
  std::string text;
  for (size_t at = 0, n = 0; at < name.size(); at += n) {
    n = uint8_t(name[at]) < 0x80 ? 1 : 2;
    const auto found = bytes.find(std::string(name.substr(at, n)));
    check(found != bytes.end(), file, ": the token '", name.substr(0, 60), "' has a character that stands for no byte");
    text += found->second;
  }
  return text;
}

std::string merges_text(const BytePairs& pairs) {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : pairs.merges())
    text += written(pairs.tokens()[size_t(left)]) + " " + written(pairs.tokens()[size_t(right)]) + "\n";
  return text;
}

static Json vocabulary_json(const BytePairs& pairs) {
  Json vocabulary = Json::object();
  for (size_t id = 0; id < pairs.tokens().size(); ++id) vocabulary[written(pairs.tokens()[id])] = id;
  return vocabulary;
}

std::string vocabulary_text(const BytePairs& pairs) { return json_text(vocabulary_json(pairs)); }

std::string tokenizer_text(const BytePairs& pairs) {
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json merges = Json::array();
  for (const auto& [left, right] : pairs.merges())
    merges.push_back(written(pairs.tokens()[size_t(left)]) + " " + written(pairs.tokens()[size_t(right)]));
  Json model{{"type", "BPE"},
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
                    {"model", std::move(model)}});
}

}  // namespace gradus
