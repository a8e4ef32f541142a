// Files of byte pairs: any bytes are rejected with a message that names the file, or they are byte pairs that
// stay equal when they are written and read, and that decode every encoded text to itself. An input that
// begins with { is a tokenizer.json; any other is a merges.txt and, after its first zero byte, a vocab.json.
#include "src/data/byte_pairs.h"

#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/data/byte_pairs_testing.h"
#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

// Byte pairs learned on a random text, with up to two special tokens.
BytePairs random_pairs(Rng& rng) {
  std::string text;
  for (uint64_t n = rng.below(60); n > 0; --n) text += "aabc d\xC3\xA9"[rng.below(8)];
  BytePairs learned = BytePairs::learn(text, int64_t(rng.below(12)));
  std::vector<std::string> tokens = learned.tokens();
  for (uint64_t n = rng.below(3); n > 0; --n) tokens.push_back("<" + std::to_string(n) + ">");
  return BytePairs(tokens, learned.merges());
}

// The text with one change, which makes most files invalid.
std::string replaced(std::string text, Rng& rng) {
  struct {
    const char *from, *to;
  } constexpr kChanges[] = {{"\"a\":", "\"<a>\":"},
                            {"a b\n", "b a\n"},
                            {"null", "{\"type\":\"Sequence\"}"},
                            {"\"added_tokens\":[]", R"("added_tokens":[{"id":300,"content":"x y"}])"},
                            {"\"added_tokens\":[]", R"("added_tokens":[{"id":0,"content":"!"}])"},
                            {":7,", ":8,"},
                            {":7,", ":-1,"},
                            {":7,", ":4294967303,"},
                            {"\"merges\":[", "\"merges\":[[\"a\",\"a\"],"},
                            {"\"vocab\":{", "\"vocab\":{\"\":256,"},
                            {"#version: 0.2\n", "a a\n"}};
  const auto& change = one_of(rng, kChanges);
  if (const size_t at = text.find(change.from); at != text.npos)
    text.replace(at, std::strlen(change.from), change.to);
  return text;
}

}  // namespace

std::string sample(Rng& rng) {
  const BytePairs pairs = random_pairs(rng);
  std::string text =
      rng.below(2) ? tokenizer_text(pairs) : merges_text(pairs) + '\0' + vocabulary_text(pairs);
  for (uint64_t n = rng.below(3); n > 0; --n) text = replaced(std::move(text), rng);
  return text;
}

namespace {

void write(const char* file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}
void write_two(std::string_view merges, std::string_view vocabulary) {
  std::filesystem::remove("tokenizer.json");
  write("merges.txt", merges), write("vocab.json", vocabulary);
}

}  // namespace
}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace gradus;
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const bool is_tokenizer = input.starts_with('{');
  const size_t zero = std::min(input.find('\0'), size);
  if (is_tokenizer)
    fuzz::write("tokenizer.json", input);
  else
    fuzz::write_two(input.substr(0, zero), input.substr(std::min(zero + 1, size)));
  std::unique_ptr<BytePairs> pairs;
  try {
    pairs = std::make_unique<BytePairs>(load_byte_pairs(""));
  } catch (const Error& e) {
    const std::string_view why(e.what());
    EXPECT_TRUE(is_tokenizer ? why.starts_with("tokenizer.json")
                             : why.starts_with("merges.txt") || why.starts_with("vocab.json"))
        << why;
    return 0;
  }
  EXPECT_EQ(pairs->decode(BytePairEncoder(*pairs).encode(input)), input);
  if (!is_tokenizer) {
    fuzz::write_two(merges_text(*pairs), vocabulary_text(*pairs));
    expect_same(load_byte_pairs(""), *pairs);
  }
  fuzz::write("tokenizer.json", tokenizer_text(*pairs));
  expect_same(load_byte_pairs(""), *pairs);
  return 0;
}
