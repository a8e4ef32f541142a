// The exact probability of texts, compared with a second, generic parser; the entropy, compared with sampling
// and with calculation by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <map>
#include <sstream>

#include "src/data/corpus.h"
#include "src/data/grammar.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Grammar steps() {
  const std::string file = find_data_file("steps.grammar");
  return Grammar::parse(read_text_file(file), file);
}

std::vector<std::string> words_of(std::string sentence) {
  for (const char mark : {',', '.'})
    for (size_t at = 0; (at = sentence.find(mark, at)) != std::string::npos; at += 2)
      sentence.insert(at, 1, ' ');
  std::istringstream words(sentence);
  return {std::istream_iterator<std::string>(words), {}};
}

// Counts all derivations and sums their probabilities over every way to divide the tokens (the inside
// algorithm, Baker 1979). It knows nothing of LL(1) and works for ambiguous grammars as well.
class Chart {
 public:
  struct Inside {
    double derivations = 0, probability = 0;
  };
  Chart(const std::vector<Grammar::Rule>& rules, std::vector<std::string> tokens)
      : rules_(rules), tokens_(std::move(tokens)) {}
  Inside whole() { return of_rule(0, 0, tokens_.size()); }

 private:
  Inside of_rule(int rule, size_t from, size_t to) {
    const auto [entry, is_new] = known_.try_emplace({rule, from, to});
    if (!is_new) return entry->second;
    Inside sum;
    for (const Grammar::Alternative& a : rules_[size_t(rule)].alternatives) {
      const Inside inside = of_sequence(a, 0, from, to);
      sum.derivations += inside.derivations;
      sum.probability += a.probability * inside.probability;
    }
    return known_[{rule, from, to}] = sum;
  }
  Inside of_symbol(const Grammar::Symbol& s, size_t from, size_t to) {
    if (s.rule >= 0) return of_rule(s.rule, from, to);
    const double hit = to - from == 1 && tokens_[from] == s.token;
    return {hit, hit};
  }
  Inside of_sequence(const Grammar::Alternative& a, size_t k, size_t from, size_t to) {
    const size_t after = a.symbols.size() - k - 1;  // symbols that follow, at least one token each
    if (after == 0) return of_symbol(a.symbols[k], from, to);
    Inside sum;
    for (size_t middle = from + 1; middle + after <= to; ++middle) {
      const Inside first = of_symbol(a.symbols[k], from, middle);
      if (first.derivations == 0) continue;
      const Inside rest = of_sequence(a, k + 1, middle, to);
      sum.derivations += first.derivations * rest.derivations;
      sum.probability += first.probability * rest.probability;
    }
    return sum;
  }

  const std::vector<Grammar::Rule>& rules_;
  std::vector<std::string> tokens_;
  std::map<std::tuple<int, size_t, size_t>, Inside> known_;
};

TEST(L03_Grammar, EverySampledSentenceHasOneDerivationAndTheExactProbability) {
  const Grammar grammar = steps();
  Rng rng(11, 0);
  for (int i = 0; i < 500; ++i) {
    const std::string sentence = grammar.generate(rng);
    const Chart::Inside inside = Chart(grammar.rules(), words_of(sentence)).whole();
    ASSERT_EQ(inside.derivations, 1) << sentence;
    ASSERT_NEAR(std::exp(grammar.log_probability(sentence)) / inside.probability, 1, 1e-12) << sentence;
  }
}

TEST(L03_Grammar, TheCountingParserSeesAmbiguityAndParseRefusesIt) {
  // sentence -> sentence sentence | "x": "x x x" can be bracketed in two ways.
  std::vector<Grammar::Rule> rules(1);
  rules[0].name = "sentence";
  rules[0].alternatives = {{0.5, {{"sentence", 0}, {"sentence", 0}}}, {0.5, {{"x", -1}}}};
  EXPECT_EQ(Chart(rules, {"x", "x", "x"}).whole().derivations, 2);
  EXPECT_EQ(Chart(rules, {"x", "x", "x", "x"}).whole().derivations, 5);  // Catalan numbers
  EXPECT_THROW(Grammar::parse("sentence -> 0.5 sentence sentence | 0.5 \"x\""), Error);
  EXPECT_THROW(Grammar::parse("s -> a | b\na -> \"x\"\nb -> \"x\""), Error);
}

TEST(L03_Grammar, SampledSurprisalConvergesToTheComputedEntropyRate) {
  const Grammar grammar = steps();
  constexpr int kSentences = 20000;
  Rng rng(3, 1);
  double h = 0, hh = 0, b = 0, bb = 0, rr = 0;
  for (int i = 0; i < kSentences; ++i) {
    const std::string sentence = grammar.generate(rng);
    const double nats = -grammar.log_probability(sentence), bytes = double(sentence.size());
    const double residual = nats - grammar.entropy_rate() * bytes;
    h += nats, hh += nats * nats, b += bytes, bb += bytes * bytes, rr += residual * residual;
  }
  const auto check_mean = [](const char* what, double sum, double squares, double expected) {
    const double mean = sum / kSentences,
                 error = std::sqrt((squares / kSentences - mean * mean) / kSentences);
    EXPECT_NEAR(mean, expected, 4 * error) << what;
    EXPECT_LT(4 * error, 0.02 * expected) << what << ": too few samples to see an error of 2 %";
  };
  check_mean("nats per sentence", h, hh, grammar.entropy());
  check_mean("bytes per sentence", b, bb, grammar.mean_bytes());
  // The rate is a ratio of means; its standard error is that of the residuals (delta method).
  EXPECT_NEAR(h / b, grammar.entropy_rate(), 4 * std::sqrt(rr / kSentences / kSentences) / (b / kSentences));
}

TEST(L03_Grammar, EntropyOfAGrammarSolvedByHand) {
  // Heads: n more of "x" with probability 1/2 each: geometric, entropy 2 ln 2, 2 words on average.
  const Grammar g = Grammar::parse("s -> \"x\" rest\nrest -> 0.5 s | 0.5 \".\"");
  EXPECT_NEAR(g.entropy(), 2 * std::log(2.0), 1e-12);
  EXPECT_NEAR(g.mean_bytes(), 2 * 2 + 1, 1e-12);  // "x x." and a newline: 2 per word, and the full stop
  EXPECT_NEAR(g.log_probability("x.\nx x.\n"), std::log(0.5) + std::log(0.25), 1e-12);
  EXPECT_EQ(g.log_probability(""), 0);
}

TEST(L03_Grammar, EveryWordIsFrequentEnoughToBeLearned) {
  const Grammar grammar = steps();
  EXPECT_GT(grammar.entropy_rate(), 0.35);
  EXPECT_LT(grammar.entropy_rate(), 0.8);
  std::map<std::string, int> count;
  for (const Grammar::Rule& rule : grammar.rules())
    for (const Grammar::Alternative& a : rule.alternatives)
      for (const Grammar::Symbol& s : a.symbols)
        if (s.rule < 0) count[s.token] = 0;
  EXPECT_GE(count.size(), 40u);
  EXPECT_LE(count.size(), 150u);
  Rng rng(5, 0);
  for (size_t bytes = 0; bytes < 1'000'000;) {
    const std::string sentence = grammar.generate(rng);
    bytes += sentence.size();
    for (const std::string& word : words_of(sentence)) ++count.at(word);
  }
  for (const auto& [word, times] : count) EXPECT_GE(times, 300) << word;
}

TEST(L03_Grammar, TextThatIsNotWholeSentencesIsRefusedWithThePosition) {
  const Grammar g = Grammar::parse("s -> \"The\" n \".\"\nn -> \"hill\" | \"hills\"");
  EXPECT_NEAR(g.log_probability("The hill.\nThe hills.\n"), 2 * std::log(0.5), 1e-12);
  const std::pair<const char*, const char*> wrong[] = {
      {"The hill.", "newline at byte 9"}, {"The hill", "byte 8"},        {"The  hill.\n", "byte 3"},
      {"Thehill.\n", "byte 0"},           {"The hill .\n", "byte 8"},    {" The hill.\n", "byte 0"},
      {"The hill.\n\n", "byte 10"},       {"The tower.\n", "begin a n"}, {"The hill.\nThe", "byte 13"},
      {"the hill.\n", "byte 0"},          {"The hill. ", "newline"},     {"\n", "byte 0"}};
  for (const auto& [text, part] : wrong) expect_refused(part, [&, text = text] { g.log_probability(text); });
}

TEST(L03_Grammar, SameSeedSameText) {
  const Grammar grammar = steps();
  const Corpus a = generate_corpus(grammar, 1, 20000), b = generate_corpus(grammar, 1, 20000);
  const Corpus c = generate_corpus(grammar, 2, 20000);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_NE(a.bytes, c.bytes);
  EXPECT_GE(a.bytes.size(), 20000u);
  EXPECT_NEAR(double(a.held_out().size()), 2000, 150);
  // Both parts are whole sentences, and their surprisals add up to that of the text.
  EXPECT_NEAR(grammar.log_probability(a.train()) + grammar.log_probability(a.held_out()),
              grammar.log_probability(a.bytes), 1e-8);
}

}  // namespace
}  // namespace gradus
