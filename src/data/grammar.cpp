#include "src/data/grammar.h"

#include <cmath>

#include "src/data/grammar_tokens.h"

namespace gradus {

std::string Grammar::generate(Rng& rng) const {
  std::string sentence;
  std::vector<Symbol> stack{{rules_[0].name, 0}};  // what is still to be written, the next symbol last
  while (!stack.empty()) {
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
// linear equations with non-negative coefficients; iterating from 0 rises to the least solution, if there is
// one.
void Grammar::compute_expectations(const std::string& file) {
  constexpr int kIterations = 10000;
  std::vector<double> h(rules_.size(), 0.0), b(rules_.size(), 0.0);
  bool settled = false;
  for (int i = 0; i < kIterations && !settled; ++i) {
    settled = true;
    for (size_t r = rules_.size(); r-- > 0;) {  // rules mostly refer to later ones
      double entropy = 0, bytes = 0;
      for (const Alternative& a : rules_[r].alternatives) {
        double inner_entropy = -std::log(a.probability), inner_bytes = 0;
        for (const Symbol& s : a.symbols) {
          inner_entropy += s.rule < 0 ? 0 : h[s.rule];
          inner_bytes += s.rule < 0 ? double(s.token.size() + is_word(s.token)) : b[s.rule];
        }
        entropy += a.probability * inner_entropy;
        bytes += a.probability * inner_bytes;
      }
      settled =
          settled && std::abs(bytes - b[r]) <= 1e-14 * bytes && std::abs(entropy - h[r]) <= 1e-14 * entropy;
      h[r] = entropy;
      b[r] = bytes;
    }
  }
  check(settled, file,
        ": the sentences are infinitely long in the mean; the recursion needs a more probable end");
  entropy_ = h[0];
  mean_bytes_ = b[0];  // the first word has no space before it, but the sentence has a newline at its end
}

}  // namespace gradus
