// Classes of characters, compared with Python's Unicode database (tests/golden/make_tokens.py).
#include "src/data/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <fstream>
#include <vector>

namespace gradus {
namespace {

char letter_of(CharClass is) { return "OLNS"[int(is)]; }

TEST(L14_Unicode, ClassesAreThoseOfUnicode15) {
  if (std::atof(utf8proc_unicode_version()) < 15) GTEST_SKIP() << "utf8proc has an older version of Unicode";
  std::ifstream file("tests/golden/tokens/classes.txt");
  char expected = 0;
  char32_t c = 0;
  int64_t wrong = 0;
  for (char32_t n = 0; file >> expected >> reinterpret_cast<uint32_t&>(n);)
    for (const char32_t end = c + n; c < end; ++c)
      if (expected != 'U' && letter_of(class_of(c)) != expected && ++wrong < 10)
        ADD_FAILURE() << "U+" << std::hex << uint32_t(c) << " is " << letter_of(class_of(c)) << ", not "
                      << expected;
  EXPECT_EQ(c, char32_t(0x110000)) << "classes.txt is not complete";
  EXPECT_EQ(wrong, 0);
}

TEST(L14_Unicode, TheCodePointsOfWhiteSpace) {
  std::vector<uint32_t> spaces;
  for (char32_t c = 0; c < 0x110000; ++c)
    if (class_of(c) == CharClass::Space) spaces.push_back(c);
  EXPECT_EQ(spaces,
            (std::vector<uint32_t>{0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,   0xA0,   0x1680,
                                   0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                   0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}));
}

TEST(L14_Unicode, WhatIsNoCodePointIsOther) {
  for (const char32_t c : {char32_t(0x110000), char32_t(0x7FFFFFFF), char32_t(0xFFFFFFFF)})
    EXPECT_EQ(class_of(c), CharClass::Other);
  EXPECT_EQ(class_of(0xD800), CharClass::Other);
  EXPECT_EQ(class_of(0x10FFFF), CharClass::Other);
}

TEST(L14_Unicode, TheFirstCharacterOfAText) {
  const auto first = [](std::string_view text) {
    const Char c = first_char(text);
    return std::string(1, letter_of(c.is)) + std::to_string(c.bytes);
  };
  EXPECT_EQ(first("a1"), "L1");
  EXPECT_EQ(first("1a"), "N1");
  EXPECT_EQ(first("\na"), "S1");
  EXPECT_EQ(first("-a"), "O1");
  EXPECT_EQ(first(std::string_view("\0a", 2)), "O1");
  EXPECT_EQ(first("\u00E9a"), "L2");
  EXPECT_EQ(first("\u00A0a"), "S2");
  EXPECT_EQ(first("\u00BD"), "N2");
  EXPECT_EQ(first("\u732B"), "L3");
  EXPECT_EQ(first("\u3000"), "S3");
  EXPECT_EQ(first("\U0001D7D8"), "N4");
  EXPECT_EQ(first("\U0001F600"), "O4");
  EXPECT_EQ(first("\U00020000x"), "L4");
}

TEST(L14_Unicode, AByteThatBeginsNoCharacterStandsAlone) {
  for (const std::string_view text :
       {"\x80", "\xBF\x80", "\xC3", "\xC3\x28", "\xC1\xA1", "\xE7\x8C", "\xE0\x81\xA1", "\xED\xA0\x80",
        "\xF0\x9F\x98", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF\xFF"}) {
    EXPECT_EQ(first_char(text).is, CharClass::Other);
    EXPECT_EQ(first_char(text).bytes, 1);
  }
}

}  // namespace
}  // namespace gradus
