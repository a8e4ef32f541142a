#include "src/data/grammar.h"

#include <cmath>

#include "src/data/grammar_tokens.h"

namespace gradus {

// Limits of the mean sentence and of any one sentence, so that every grammar's text fits into memory.
constexpr double kMostMeanBytes = 1 << 16;
constexpr size_t kMostBytes = size_t(1) << 22;
constexpr int64_t kMostWork = 2'000'000;  // steps of compute_expectations: a fraction of a second

std::string Grammar::generate(Rng& rng) const {
  std::string sentence;
  std::vector<Symbol> stack{{rules_[0].name, 0}};  // symbols still to be written, the next one last
  while (!stack.empty()) {
    // The symbols on the stack will be written too, and each is at least one byte.
    check(sentence.size() + stack.size() < kMostBytes, "generate: a sentence became longer than ", kMostBytes,
          " bytes; make long sentences of this grammar less probable");
    const Symbol symbol = stack.back();
    stack.pop_back();
    if (symbol.rule < 0) {
      if (!sentence.empty() && is_word(symbol.token)) sentence += ' ';
      sentence += symbol.token;
      continue;
    }
    const std::vector<Alternative>& alternatives = rules_[symbol.rule].alternatives;
    double u = rng.uniform();
    size_t choice = 0;
    while (choice + 1 < alternatives.size() && (u -= alternatives[choice].probability) >= 0) ++choice;
    const std::vector<Symbol>& symbols = alternatives[choice].symbols;
    stack.insert(stack.end(), symbols.rbegin(), symbols.rend());
  }
  return sentence + "\n";
}

double Grammar::log_probability(std::string_view text) const {
  double total = 0;
  for (size_t at = 0; at < text.size();) total += sentence_log_probability(text, at);
  return total;
}

// The predictive parser: the next token decides which alternative a rule takes. Moves `at` past the sentence.
double Grammar::sentence_log_probability(std::string_view text, size_t& at) const {
  const size_t start = at;
  double total = 0;
  std::vector<Symbol> stack{{rules_[0].name, 0}};
  while (!stack.empty()) {
    const Symbol symbol = stack.back();
    stack.pop_back();
    // A space stands before every word but the sentence's first, and nowhere else.
    const bool space = at > start && at < text.size() && text[at] == ' ';
    const std::string_view token = token_at(text, at + space);
    const bool well_spaced = at == start || space == is_word(token);
    if (symbol.rule < 0) {
      check(well_spaced && token == symbol.token, "log_probability: byte ", at,
            " of the text should begin \"", symbol.token,
            "\"; the text is not made of whole sentences of this grammar");
      at += size_t(space) + token.size();
      continue;
    }
    const Rule& rule = rules_[symbol.rule];
    const auto choice = rule.begins.find(token);
    check(well_spaced && choice != rule.begins.end(), "log_probability: byte ", at,
          " of the text should begin a ", rule.name,
          "; the text is not made of whole sentences of this grammar");
    const Alternative& alternative = rule.alternatives[choice->second];
    total += std::log(alternative.probability);
    stack.insert(stack.end(), alternative.symbols.rbegin(), alternative.symbols.rend());
  }
  check(at < text.size() && text[at] == '\n', "log_probability: the sentence that begins at byte ", start,
        " should end with a newline at byte ", at);
  ++at;
  return total;
}

// With h the entropy and b the bytes of each rule's texts (expected values), for every rule
//   h = sum over alternatives p (-ln p + sum of the h of its rules),  b = sum p (bytes of tokens + sum of b),
// linear equations with non-negative coefficients: Gaussian elimination, from the last rule to the first.
// The elimination leaves, for each rule, h and b without those of the earlier rules that it uses, and how
// often it uses these. There is a solution if and only if after that no rule uses itself once or more on
// average (the pivots of an M-matrix are positive: Berman and Plemmons 1994, chapter 6).
void Grammar::compute_expectations(const std::string& file) {
  struct Solved {
    double h = 0, b = 0;
    std::map<int, double> uses;
    void add(const Solved& other, double times) {
      h += times * other.h, b += times * other.b;
      for (const auto& [rule, n] : other.uses) uses[rule] += times * n;
    }
  };
  std::vector<Solved> solved(rules_.size());
  int64_t work = 0;
  for (int r = int(rules_.size()) - 1; r >= 0; --r) {
    Solved& rule = solved[r];
    for (const Alternative& a : rules_[r].alternatives) {
      Solved text;
      text.h = -std::log(a.probability);
      for (const Symbol& s : a.symbols)
        if (s.rule < 0)
          text.b += double(s.token.size() + is_word(s.token));
        else
          ++text.uses[s.rule];
      rule.add(text, a.probability);
    }
    while (!rule.uses.empty() && rule.uses.rbegin()->first > r) {
      const Solved& later = solved[rule.uses.rbegin()->first];
      const double times = rule.uses.rbegin()->second;
      rule.uses.erase(std::prev(rule.uses.end()));
      rule.add(later, times);
      work += int64_t(later.uses.size());
      check(work < kMostWork, file, ", line ", rules_[r].line, ": at ", rules_[r].name,
            " the rules use each other in too many ways for their mean to be computed; remove some");
    }
    const double self = rule.uses.contains(r) ? rule.uses[r] : 0;
    check(self < 1, file, ": the sentences are infinitely long on average; the recursion of ", rules_[r].name,
          " (line ", rules_[r].line, ") needs a more probable end");
    rule.uses.erase(r);
    Solved scaled;
    scaled.add(rule, 1 / (1 - self));
    rule = scaled;
  }
  entropy_ = solved[0].h;
  // The first word has no space before it, but the sentence has a newline at its end.
  mean_bytes_ = solved[0].b;
  check(mean_bytes_ <= kMostMeanBytes, file, ": the sentences are ", mean_bytes_,
        " bytes long on average; the most is ", kMostMeanBytes, "; shorten them, or end them more often");
}

}  // namespace gradus
