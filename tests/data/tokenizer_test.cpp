// Bytes as tokens, and as text that is safe for a terminal.
#include "src/data/tokenizer.h"

#include <gtest/gtest.h>

#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L03_Tokenizer, TokensAreBytesAndComeBack) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += char(i);
  const std::vector<int32_t> tokens = ByteTokenizer::encode(all);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(tokens[size_t(i)], i);
  EXPECT_EQ(ByteTokenizer::decode(tokens), all);
  EXPECT_TRUE(ByteTokenizer::encode("").empty());
  EXPECT_EQ(ByteTokenizer::decode({}), "");
  EXPECT_EQ(ByteTokenizer::kVocabulary, 256);
  EXPECT_EQ(ByteTokenizer::kEndOfDocument, 0);
  expect_refused("token 256 is not a byte", [&] { ByteTokenizer::decode({5, 256, 7}); });
  expect_refused("token -1 is not a byte", [&] { ByteTokenizer::decode({-1}); });
}

// On both sides of every range; an escaped byte cannot garble a terminal.
TEST(L03_Tokenizer, PrintableText) {
  const std::pair<std::string, const char*> texts[] = {
      {"\x1F\x20\x7E\x7F\x01", "\\x1F ~\\x7F\\x01"},
      {"\xC2\x80\xC2\x9F\xC2\xA0", "\\xC2\\x80\\xC2\\x9F\xC2\xA0"},  // C2 9B: as ESC [
      {"\n\t\v\b\r", "\n\t\\x0B\\x08\\x0D"},
      {"a\\x00\"'", "a\\x00\"'"},
      {"\xF0\x9F\x98\x80|\xF0\x9F\x98", "\xF0\x9F\x98\x80|\\xF0\\x9F\\x98"},
      {"\xC3\xA9\xE2\x82\xAC", "\xC3\xA9\xE2\x82\xAC"},
      {"\xC2", "\\xC2"},
      {"\xE9 \xC3", "\\xE9 \\xC3"},
      {std::string("\0\x1B[2J", 5), "\\x00\\x1B[2J"},
      {"", ""}};
  for (const auto& [text, shown] : texts) EXPECT_EQ(printable(text), shown);
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string out = printable(std::string{char(a), char(b)});
      for (const char c : out) ASSERT_TRUE(uint8_t(c) >= 0x20 || c == '\n' || c == '\t') << a << " " << b;
    }
}

}  // namespace
}  // namespace gradus
