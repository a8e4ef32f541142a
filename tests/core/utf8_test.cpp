// UTF-8: every length on both sides, and what is malformed.
#include "src/core/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradus {
namespace {

TEST(L03_Utf8, OnBothSidesOfEveryLength) {
  for (const auto& [text, length] : std::vector<std::pair<std::string, int>>{{"\x7F", 1},
                                                                             {"\xC2\x80", 2},
                                                                             {"\xDF\xBF", 2},
                                                                             {"\xE0\xA0\x80", 3},
                                                                             {"\xEE\x80\x80", 3},
                                                                             {"\xEF\xBF\xBF", 3},
                                                                             {"\xF0\x90\x80\x80", 4},
                                                                             {std::string(1, '\0'), 1},
                                                                             {"\xE0\x9F\xBF", 0},
                                                                             {"\xF0\x8F\xBF\xBF", 0},
                                                                             {"\xED\xA0\x80", 0},
                                                                             {"\xC2\xC0", 0},
                                                                             {"\xC2\x7F", 0},
                                                                             {"\xE1\x80", 0},
                                                                             {"\xF1\x80\x80", 0},
                                                                             {"\xE1\x80\x7F", 0},
                                                                             {"\xF1\x80\x80 ", 0}}) {
    EXPECT_EQ(utf8_length(text), length) << ::testing::PrintToString(text);
    if (length == 0) continue;
    EXPECT_EQ(utf8_length(text + "\xFF"), length) << "what follows does not matter";
  }
}

TEST(L03_Utf8, MalformedIsNone) {
  for (const char* bad :
       {"\x80", "\xC0\xAF", "\xC1\x81", "\xC3", "\xC3(", "\xE0\x80\x80", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", ""})
    EXPECT_EQ(utf8_length(bad), 0);
  EXPECT_EQ(utf8_length("\xF4\x8F\xBF\xBF"), 4);
  EXPECT_EQ(utf8_length("\xED\x9F\xBF"), 3);
}

}  // namespace
}  // namespace gradus
