// The numbers in a grammar: what they may be, and what they must sum to.
#include <gtest/gtest.h>

#include "src/data/grammar.h"

namespace gradus {
namespace {

// The message of the error, or "" if the grammar is one.
std::string parsing(const std::string& text) {
  try {
    Grammar::parse(text);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
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

}  // namespace
}  // namespace gradus
