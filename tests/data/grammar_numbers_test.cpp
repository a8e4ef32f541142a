// The numbers in a grammar: what they may be, and what they must sum to.
#include <gtest/gtest.h>

#include "src/data/grammar.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// The message of the error, or "" if the grammar is one.
std::string parsing(const std::string& text) {
  return refusal([&] { Grammar::parse(text); });
}

TEST(L03_GrammarNumbers, ProbabilitiesSumToOne) {
  const auto sum = [](const std::string& first, const std::string& second) {
    return parsing("s -> " + first + " \"a\" | " + second + " \"b\"");
  };
  for (const char* second : {"0.5", "0.5000000005", "0.4999999995"})
    EXPECT_EQ(sum("0.5", second), "") << second;
  for (const char* second : {"0.495", "0.505", "0.499999998", "0.500000002"})
    EXPECT_NE(sum("0.5", second).find("not to 1"), std::string::npos) << second;
  EXPECT_NE(sum("0.995", "0.0000000001").find("sum to 0.995"), std::string::npos);
  EXPECT_NE(sum("1", "0").find("above 0"), std::string::npos);
  EXPECT_NE(sum("1.01", "0.1").find("at most 1"), std::string::npos);
}

TEST(L03_GrammarNumbers, NothingTrailsANumber) {
  const std::string rule = "\na -> \"a\"\nabc -> \"c\"\n";
  EXPECT_EQ(parsing("s -> 0.5 a \"x\" | 0.5 abc" + rule), "");
  EXPECT_EQ(parsing("s -> 0.5\"x\" a| 0.5\tabc" + rule), "");  // no letter: a symbol may begin
  for (const char* number : {"0.5abc", "0.5a", "5e-1abc", "0.5_a", "0.5.5 a", "0.5e a", "0.5-1 a"})
    EXPECT_NE(parsing(std::string("s -> ") + number + " \"x\" | 0.5 \"y\" a abc" + rule), "") << number;
}

}  // namespace
}  // namespace gradus
