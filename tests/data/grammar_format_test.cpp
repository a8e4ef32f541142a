// The format of a grammar: its tokens, comments and numbers, the places of rules, and the line that an error
// names.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/grammar.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L03_GrammarFormat, TokensAreWordsOrOneMark) {
  const Grammar g = Grammar::parse(R"(s_1 -> "it" "," "don't" "x-1" "2nd" "-" ";")");
  Rng rng(1, 0);
  EXPECT_EQ(g.generate(rng), "it, don't x-1 2nd -;\n") << "a space before every word but the first";
  EXPECT_EQ(g.log_probability("it, don't x-1 2nd -;\nit, don't x-1 2nd -;\n"), 0);
  EXPECT_EQ(g.mean_bytes(), 21);
  EXPECT_EQ(g.entropy(), 0);
  EXPECT_EQ(g.entropy_rate(), 0);
  for (const char* bad : {"a b", " a", "a ", "a.", "..", ".a", " ", "\t", "a_b"})
    expect_refused("is not one token", [&] { Grammar::parse("s -> \"" + std::string(bad) + "\""); });
}

TEST(L03_GrammarFormat, RulesKnowTheirLineTheirProbabilitiesAndTheirBeginnings) {
  const Grammar g = Grammar::parse(
      "# a comment -> \"x\" |\n\n"
      "s -> 0.25 n \"runs\"   # another\n"
      "  | 0.75 \"He\" n\n\n"
      "n -> \"a\" | \"b\" | m\n"
      "m -> \"c\" \"d\"");
  ASSERT_EQ(g.rules().size(), 3u);
  const Grammar::Rule &s = g.rules()[0], &n = g.rules()[1], &m = g.rules()[2];
  EXPECT_EQ(s.name + n.name + m.name, "snm");
  EXPECT_EQ(std::tuple(s.line, n.line, m.line), std::tuple(3, 6, 7));
  EXPECT_EQ(s.alternatives[0].probability, 0.25);
  EXPECT_EQ(s.alternatives[1].probability, 0.75);
  for (const Grammar::Alternative& a : n.alternatives) EXPECT_EQ(a.probability, 1.0 / 3);
  using Begins = std::map<std::string, int, std::less<>>;
  EXPECT_EQ(s.begins, (Begins{{"a", 0}, {"b", 0}, {"c", 0}, {"He", 1}}));
  EXPECT_EQ(n.begins, (Begins{{"a", 0}, {"b", 1}, {"c", 2}}));
  EXPECT_EQ(s.alternatives[0].symbols[0].rule, 1);
  EXPECT_EQ(s.alternatives[0].symbols[1].rule, -1);
  EXPECT_EQ(s.alternatives[0].symbols[1].token, "runs");
  EXPECT_NEAR(g.log_probability("c d runs\n"), std::log(0.25 / 3), 1e-12);
  EXPECT_NEAR(g.entropy_rate(), g.entropy() / g.mean_bytes(), 1e-15);
}

TEST(L03_GrammarFormat, ErrorsNameTheFileAndTheLine) {
  const std::pair<const char*, const char*> bad[] = {
      {"s -> \"a\"\n  | \"b\n\"", "line 4: a quoted token has no end"},
      {"s -> \"a\"\n  \"b c\"", "line 4: \"b c\" is not one token"},
      {"s -> \"a\"\n\n  ; ", "line 5: expected a name, found ';'"},
      {"s\n\n \"a\"", "line 5: expected -> after s"},
      {"s -> \"a\" t\nt\n\n-> \"b\"\n\nu\n-> 2 \"c\"", "line 9: a probability must be above 0"},
      {"s ->\n 0.5 \"a\" |\n 1.5 \"b\"", "line 5: a probability must be above 0 and at most 1"},
      {"s ->\n 0.5x", "line 4: 'x' trails a number"},
      {"s -> \"a\" t\nt -> 0.5 \"a\" |\n 0.4 \"b\"\n\nu -> \"c\"",
       "line 4: the probabilities of t sum to 0.9"},
      {"s -> \"a\" t\nt -> 0.5 \"a\" |\n \"b\"\n\nu -> \"c\"", "line 4: only some alternatives of t have"},
      {"s -> \"a\" |\n\nt -> \"b\"", "line 3: an alternative of s is empty"},
      {"s -> | \"a\"", "line 3: an alternative of s is empty"},
      {"s -> \"\"", "is not one token"},
      {"s -> 0 \"a\" | 1 \"b\"", "line 3: a probability must be above 0"},
      {"s -> t \"a\"\nt -> 0.5 \"b\" | 0.5 s", "can begin with itself (left recursion)"},
      {"s -> \".\"", "must begin with a word"},
      {"s -> \"a\"\n|\n\n| \"b\"", "line 4: an alternative of s is empty"},
      {"s -> \"a\" |\n\n t", "line 3: s uses t, which has no rule"},
      {"s -> \"a\" t\n\nt -> \"b\" | \"c\"\n | \"b\"", "line 5: two alternatives of t begin with \"b\""},
      {"s -> \"a\" t\nt -> t \"b\"", "line 4: t can begin with itself"},
      {"s -> \"a\"\n\nt -> \"b\"", "line 5: no sentence can use t"},
      {"s -> \"a\"\n\nt -> \"b\" | \"c\" t", "line 5: no sentence can use t"},
      {"s -> \"a\"\ns -> \"b\"", "line 4: s is defined twice"},
      {"s -> \"a\" t\nt -> \"b\" t", "the recursion of t (line 4) needs a more probable end"}};
  for (const auto& [text, part] : bad) {
    const std::string said =
        refusal([&, text = text] { Grammar::parse("# begin\n\n" + std::string(text), "f"); });
    EXPECT_NE(said.find(part), std::string::npos) << text << "\n" << said;
    EXPECT_TRUE(said.starts_with("f, line ") || said.starts_with("f: ")) << said;
  }
  expect_refused("grammar: no rules", [] { Grammar::parse("# nothing\n"); });
}

// The message of the error, or "" if the grammar is valid.
std::string parsing(const std::string& text) {
  return refusal([&] { Grammar::parse(text); });
}

TEST(L03_GrammarFormat, ProbabilitiesSumToOne) {
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

TEST(L03_GrammarFormat, NothingTrailsANumber) {
  const std::string rule = "\na -> \"a\"\nabc -> \"c\"\n";
  EXPECT_EQ(parsing("s -> 0.5 a \"x\" | 0.5 abc" + rule), "");
  EXPECT_EQ(parsing("s -> 0.5\"x\" a| 0.5\tabc" + rule), "");  // no letter: a symbol may begin
  for (const char* number : {"0.5abc", "0.5a", "5e-1abc", "0.5_a", "0.5.5 a", "0.5e a", "0.5-1 a"})
    EXPECT_NE(parsing(std::string("s -> ") + number + " \"x\" | 0.5 \"y\" a abc" + rule), "") << number;
}

}  // namespace
}  // namespace gradus
