// UTF-8: characters on both sides of every length, and malformed ones.
#include "src/core/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradus {
namespace {

TEST(L03_Utf8, OnBothSidesOfEveryLengthAndMalformed) {
  for (const auto& [text, length] : std::vector<std::pair<std::string, int>>{{"\x7F", 1},
                                                                             {"\xC2\x80", 2},
                                                                             {"\xDF\xBF", 2},
                                                                             {"\xE0\xA0\x80", 3},
                                                                             {"\xEE\x80\x80", 3},
                                                                             {"\xEF\xBF\xBF", 3},
                                                                             {"\xF0\x90\x80\x80", 4},
                                                                             {std::string(1, '\0'), 1},
                                                                             {"\xF4\x8F\xBF\xBF", 4},
                                                                             {"\xED\x9F\xBF", 3},
                                                                             {"\xE0\x9F\xBF", 0},
                                                                             {"\xF0\x8F\xBF\xBF", 0},
                                                                             {"\xED\xA0\x80", 0},
                                                                             {"\xC2\xC0", 0},
                                                                             {"\xC2\x7F", 0},
                                                                             {"\xE1\x80", 0},
                                                                             {"\xF1\x80\x80", 0},
                                                                             {"\xE1\x80\x7F", 0},
                                                                             {"\xF1\x80\x80 ", 0},
                                                                             {"\x80", 0},
                                                                             {"\xC0\xAF", 0},
                                                                             {"\xC1\x81", 0},
                                                                             {"\xC3", 0},
                                                                             {"\xC3(", 0},
                                                                             {"\xE0\x80\x80", 0},
                                                                             {"\xE2\x82", 0},
                                                                             {"\xF0\x80\x80\x80", 0},
                                                                             {"\xF4\x90\x80\x80", 0},
                                                                             {"\xF5\x80\x80\x80", 0},
                                                                             {"\xFF", 0},
                                                                             {"", 0}}) {
    EXPECT_EQ(utf8_length(text), length) << ::testing::PrintToString(text);
    if (length == 0) continue;
    EXPECT_EQ(utf8_length(text + "\xFF"), length) << "the bytes behind the character must not matter";
  }
}

}  // namespace
}  // namespace gradus
