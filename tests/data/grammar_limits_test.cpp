// Grammars at the limits: sentences that never or almost never end, long sentences, and long chains of rules.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "src/data/grammar.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

void expect_refused(const std::string& text, const std::string& part) {
  const std::string said = refusal([&] { Grammar::parse(text, "file"); });
  EXPECT_NE(said.find(part), std::string::npos) << said << "\n" << text.substr(0, 200);
  EXPECT_TRUE(said.starts_with("file")) << said;
}

// "r0 -> FRONT r1 BACK", ... "rN -> END"; BACK may be "r" for a second use of the next rule.
std::string chain(int rules, const std::string& front, const std::string& back, const std::string& end) {
  std::ostringstream text;
  for (int r = 0; r < rules; ++r) {
    text << "r" << r << " -> " << front << " r" << r + 1;
    text << (back == "r" ? " r" + std::to_string(r + 1) : back) << "\n";
  }
  text << "r" << rules << " -> " << end << "\n";
  return text.str();
}

TEST(L03_GrammarLimits, SentencesWithoutAnEndAreRefused) {
  for (const char* text :
       {"s -> \"a\" t\nt -> \"b\" t t", "s -> \"a\" t\nt -> \"b\" t t t",
        "s -> \"a\" t\nt -> \"b\" u u\nu -> \"c\" t", "s -> \"a\" s", "s -> 0.5 \"a\" s s | 0.5 \"b\"",
        "s -> 0.6 \"a\" s s | 0.4 \"b\"", "s -> 0.9 \"end\" | 0.1 \"a\" t\nt -> \"b\" t"})
    expect_refused(text, "infinitely long on average");
}

TEST(L03_GrammarLimits, SentencesTooLongForAnyMemoryAreRefused) {
  expect_refused(chain(61, "", "r", "\"x\""), "are 4.61169e+18 bytes long on average");
  expect_refused(chain(2000, "", "r", "\"x\""), "bytes long on average");  // 2^2000 is infinite as a double
  expect_refused("s -> 0.49999999 \"x\" s s | 0.50000001 \"y\"", "bytes long on average");
  expect_refused(chain(15, "", "r", "\"abc\""), "are 131072 bytes long on average; the most is 65536");
  EXPECT_EQ(Grammar::parse(chain(14, "", "r", "\"abc\"")).mean_bytes(), 65536) << "the maximum";
}

TEST(L03_GrammarLimits, AMeanJustBelowInfiniteIsExact) {
  for (const double p : {0.4999, 0.49998}) {
    std::ostringstream text;
    text << "s -> " << p << " \"x\" s s | " << 1 - p << " \"y\"";
    const Grammar g = Grammar::parse(text.str());
    // b = 2 + 2 p b;   h = H(p) + 2 p h
    const double entropy = -p * std::log(p) - (1 - p) * std::log(1 - p);
    EXPECT_NEAR(g.mean_bytes() * (1 - 2 * p) / 2, 1, 1e-9);
    EXPECT_NEAR(g.entropy() * (1 - 2 * p) / entropy, 1, 1e-9);
  }
}

// Each rule goes on to the next one, in the order of the file or against it; the last one to the first.
TEST(L03_GrammarLimits, RulesInACircle) {
  for (const int step : {1, 1999}) {
    std::ostringstream text;
    for (int r = 0; r < 2000; ++r)
      text << "r" << r << " -> 0.75 \"a\" r" << (r + step) % 2000 << " | 0.25 \"b\"\n";
    const Grammar g = Grammar::parse(text.str());
    EXPECT_NEAR(g.mean_bytes(), 2 / 0.25, 1e-9);
    EXPECT_NEAR(g.entropy(), (std::log(4.0) - 0.75 * std::log(3.0)) / 0.25, 1e-9);
  }
}

// Two rules that use each other and themselves, solved by hand: b_s = 2 + b_s / 4 + b_t / 4 and
// b_t = 2 + b_s / 8 + b_t / 2, so b_s = 48/11 and b_t = 56/11.
TEST(L03_GrammarLimits, RulesThatUseEachOtherAndThemselves) {
  const Grammar g = Grammar::parse(
      "s -> 0.25 \"a\" s | 0.25 \"b\" t | 0.5 \"c\"\nt -> 0.125 \"a\" s | 0.5 \"b\" t | 0.375 \"c\"");
  EXPECT_NEAR(g.mean_bytes(), 48.0 / 11, 1e-12);
}

TEST(L03_GrammarLimits, AChainOfFiftyThousandRules) {
  const Grammar g = Grammar::parse(chain(50'000, "", "", "\"x\" | \"y\""));
  EXPECT_NEAR(g.entropy(), std::log(2.0), 1e-12);
  EXPECT_NEAR(g.log_probability("x\ny\n"), -2 * std::log(2.0), 1e-12);
  Rng rng(1, 0);
  const std::string sentence = g.generate(rng);
  EXPECT_TRUE(sentence == "x\n" || sentence == "y\n") << sentence;
  expect_refused(chain(50'000, "", "", "r0"), "r0 can begin with itself (left recursion)");
}

TEST(L03_GrammarLimits, SentencesDeepInRules) {
  // Nested 16,000 deep: a … a x z … z, each z waiting for its a.
  const Grammar g = Grammar::parse(chain(16'000, "\"a\"", " \"z\"", "\"x\""));
  Rng rng(1, 0);
  const std::string sentence = g.generate(rng);
  EXPECT_EQ(sentence.size(), 64'002u);
  EXPECT_EQ(g.log_probability(sentence), 0);
}

TEST(L03_GrammarLimits, ASentenceThatGrowsWithoutBoundIsASentence) {
  // About one sentence in 600 has 2^22 or 2^24 words, twice as many bytes, although the mean is within the
  // limit.
  for (const int doublings : {22, 24}) {
    const Grammar g =
        Grammar::parse("s -> 0.9984 \"x\" | 0.0016 \"y\" r0\n" + chain(doublings, "", "r", "\"x\""));
    Rng rng(1, 0);
    const std::string said = refusal([&] {
      for (int i = 0; i < 100'000; ++i) g.generate(rng);
    });
    EXPECT_NE(said.find("longer than 4194304 bytes"), std::string::npos) << said;
  }
}

TEST(L03_GrammarLimits, WhatWouldTakeTheWholeMachineIsRefused) {
  std::ostringstream words, dense;
  for (int w = 0; w < 500; ++w) words << (w > 0 ? " | " : "") << "\"w" << w << "\"";
  expect_refused(chain(1000, "", "", words.str()), "begin in more than 200000 ways");
  for (int r = 0; r < 300; ++r) {  // each uses all others
    dense << "r" << r << " -> 0.0001 \"a\"";
    for (int other = 0; other < 300; ++other) dense << " r" << other;
    dense << " | 0.9999 \"b\"\n";
  }
  expect_refused(dense.str(), "use each other in too many ways");
}

}  // namespace
}  // namespace gradus
