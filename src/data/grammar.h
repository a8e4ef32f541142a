// A probabilistic context-free grammar: generates text whose exact probability is known, so that a student
// can watch a model's loss approach a floor that no model can pass. The file format is in data/README.md.
//
// Why the probability of a text can be computed at all: Grammar::parse only accepts LL(1) grammars (Lewis and
// Stearns 1968): no alternative is empty, and the alternatives of one rule begin with different tokens. The
// next token of the text then decides every choice, so a text has at most one derivation, the ends of its
// sentences are determined, and p(text) is the product of the probabilities of the choices on the way.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/rng.h"

namespace gradus {

class Grammar {
 public:
  // A token is a word (letters, digits, ' and -) or one punctuation mark. A symbol stands for a rule if
  // rule >= 0, else for the token.
  struct Symbol {
    std::string token;
    int rule = -1;
  };
  struct Alternative {
    double probability = 0;
    std::vector<Symbol> symbols;
  };
  struct Rule {
    std::string name;
    std::vector<Alternative> alternatives;
    std::map<std::string, int, std::less<>> begins;  // the alternative that each possible first token decides
    int line = 0;                                    // where it is defined
  };

  // Errors that name the line: bad syntax, unknown, unreachable and doubly defined symbols, probabilities
  // that do not sum to 1, left recursion, alternatives of one rule that begin with the same token (not
  // LL(1)), and rules whose sentences are on average infinitely long, or longer than 64 KiB. `file` is only
  // named in errors.
  static Grammar parse(std::string_view text, const std::string& file = "grammar");

  // One sentence of the first rule: its tokens, a space before every word but the first, "\n" at the end.
  // An error if it becomes longer than 4 MiB.
  std::string generate(Rng& rng) const;

  // ln p of a text of zero or more whole sentences, in nats; for any other text, an error names the byte.
  double log_probability(std::string_view text) const;

  double entropy() const { return entropy_; }        // expected nats of one sentence (computed, not sampled)
  double mean_bytes() const { return mean_bytes_; }  // expected bytes of one sentence
  // No model's expected loss is below this rate (Shannon 1948), in nats per byte.
  double entropy_rate() const { return entropy_ / mean_bytes_; }
  const std::vector<Rule>& rules() const { return rules_; }  // the first one is the sentence

 private:
  void find_beginnings(const std::string& file);
  size_t add_beginnings(Rule& rule, int alternative, const std::string& file) const;
  void check_reachable(const std::string& file) const;
  void compute_expectations(const std::string& file);
  double sentence_log_probability(std::string_view text, size_t& at) const;

  std::vector<Rule> rules_;
  double entropy_ = 0, mean_bytes_ = 0;
};

}  // namespace gradus
