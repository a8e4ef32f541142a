// Grammar::parse: the text format, and the checks that make every text's probability computable.
#include <charconv>
#include <cmath>
#include <map>

#include "src/data/grammar.h"
#include "src/data/grammar_tokens.h"

namespace gradus {
namespace {

constexpr size_t kMostBeginnings = 200'000;  // kept in Rule::begins, all rules together

// Reads the characters of the file and knows the line it is on, which every error names.
struct Reader {
  std::string_view text;
  const std::string& file;
  size_t at = 0;
  int line = 1;

  template <class... Parts>
  void require(bool ok, const Parts&... parts) const {
    require_at(line, ok, parts...);
  }
  template <class... Parts>
  void require_at(int which, bool ok, const Parts&... parts) const {
    check(ok, file, ", line ", which, ": ", parts...);
  }
  char peek() const { return at < text.size() ? text[at] : '\0'; }
  bool done() const { return at >= text.size(); }
  void skip_space() {  // spaces, newlines, and comments up to the end of their line
    for (; !done(); ++at) {
      if (peek() == '#') at = std::min(text.find('\n', at), text.size());
      if (peek() == '\n')
        ++line;
      else if (!std::isspace(static_cast<unsigned char>(peek())))
        return;
    }
  }
  bool take(std::string_view s) {
    const bool there = text.substr(at, s.size()) == s;
    if (there) at += s.size();
    return there;
  }
  std::string name() {
    const size_t start = at;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_') ++at;
    require(at > start, "expected a name, found '", peek(), "'");
    return std::string(text.substr(start, at - start));
  }
  std::string quoted_token() {
    const size_t end = text.find_first_of("\"\n", at);
    require(end != std::string_view::npos && text[end] == '"', "a quoted token has no end");
    const std::string token(text.substr(at, end - at));
    require(
        !token.empty() && token_at(token, 0) == token && std::isgraph(static_cast<unsigned char>(token[0])),
        "\"", token, "\" is not one token: a word, or one punctuation mark, without spaces");
    at = end + 1;
    return token;
  }
  double number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    require(error == std::errc() && value > 0 && value <= 1, "a probability must be above 0 and at most 1");
    at = size_t(end - text.data());
    require(!std::isalnum(static_cast<unsigned char>(peek())) && peek() != '_', "'", peek(),
            "' trails a number");
    return value;
  }
};

// name -> [p] symbols | [p] symbols ...   A name followed by "->" begins the next rule.
Grammar::Rule read_rule(Reader& in) {
  Grammar::Rule rule{.name = in.name(), .alternatives = {}, .begins = {}, .line = in.line};
  in.skip_space();
  in.require(in.take("->"), "expected -> after ", rule.name);
  size_t weighted = 0;
  double sum = 0;
  do {
    Grammar::Alternative alternative;
    const int line = in.line;
    in.skip_space();
    if (std::isdigit(static_cast<unsigned char>(in.peek()))) {
      sum += alternative.probability = in.number();
      ++weighted;
    }
    for (in.skip_space(); !in.done() && in.peek() != '|'; in.skip_space()) {
      const Reader before = in;
      if (in.take("\"")) {
        alternative.symbols.push_back({in.quoted_token(), -1});
        continue;
      }
      const std::string name = in.name();
      in.skip_space();
      if (in.take("->")) {
        in.at = before.at, in.line = before.line;
        break;
      }
      alternative.symbols.push_back({name, 0});  // resolved when all rules are known
    }
    in.require_at(line, !alternative.symbols.empty(), "an alternative of ", rule.name,
                  " is empty; that is not allowed");
    rule.alternatives.push_back(alternative);
  } while (in.take("|"));
  in.require_at(rule.line, weighted == 0 || weighted == rule.alternatives.size(),
                "only some alternatives of ", rule.name, " have a probability; give it to all or to none");
  if (weighted == 0)
    for (Grammar::Alternative& a : rule.alternatives) a.probability = 1.0 / double(rule.alternatives.size());
  else
    in.require_at(rule.line, std::abs(sum - 1) < 1e-9, "the probabilities of ", rule.name, " sum to ", sum,
                  ", not to 1");
  return rule;
}

}  // namespace

Grammar Grammar::parse(std::string_view text, const std::string& file) {
  Grammar grammar;
  Reader in{text, file};
  std::map<std::string, int> number;
  for (in.skip_space(); !in.done(); in.skip_space()) {
    const int line = in.line;
    grammar.rules_.push_back(read_rule(in));
    const std::string& name = grammar.rules_.back().name;
    check(number.emplace(name, int(number.size())).second, file, ", line ", line, ": ", name,
          " is defined twice");
  }
  check(!grammar.rules_.empty(), file, ": no rules; a rule looks like  sentence -> \"the\" noun \".\"");
  for (Rule& rule : grammar.rules_)
    for (Alternative& alternative : rule.alternatives)
      for (Symbol& symbol : alternative.symbols) {
        if (symbol.rule < 0) continue;
        const auto found = number.find(symbol.token);
        check(found != number.end(), file, ", line ", rule.line, ": ", rule.name, " uses ", symbol.token,
              ", which has no rule; tokens are written in quotes");
        symbol.rule = found->second;
      }
  grammar.find_beginnings(file);
  grammar.check_reachable(file);
  for (const auto& [token, choice] : grammar.rules_[0].begins)
    check(is_word(token), file, ": a sentence may begin with \"", token, "\"; it must begin with a word");
  grammar.compute_expectations(file);
  return grammar;
}

// Fills Rule::begins of all rules (the alternative of each first token), depth first along the first symbols.
// A rule that is reached while it is being visited is left recursive; a token of two alternatives breaks
// LL(1).
void Grammar::find_beginnings(const std::string& file) {
  enum class State : uint8_t { New, OnTheWay, Done };
  std::vector<State> state(rules_.size(), State::New);
  struct Visit {
    int rule;
    size_t alternative;  // the next to look at
  };
  std::vector<Visit> way;  // instead of recursion: a chain of rules may be too long for the stack
  size_t total = 0;
  const auto enter = [&](int r) {
    check(state[r] != State::OnTheWay, file, ", line ", rules_[r].line, ": ", rules_[r].name,
          " can begin with itself (left recursion); put the recursion at the end of the alternative");
    if (state[r] == State::Done) return false;
    state[r] = State::OnTheWay;
    way.push_back({r, 0});
    return true;
  };
  for (int start = 0; start < int(rules_.size()); ++start)
    for (enter(start); !way.empty();) {
      const auto [r, a] = way.back();
      Rule& rule = rules_[r];
      if (a == rule.alternatives.size()) {
        state[r] = State::Done;
        way.pop_back();
        continue;
      }
      const Symbol& first = rule.alternatives[a].symbols[0];
      if (first.rule >= 0 && enter(first.rule)) continue;
      ++way.back().alternative;
      total += add_beginnings(rule, int(a), file);
      check(total <= kMostBeginnings, file, ", line ", rule.line, ": up to ", rule.name,
            " the rules begin in more than ", kMostBeginnings, " ways altogether; use fewer rules or words");
    }
}

// Adds the beginnings of one alternative; those of its first symbol are known. Returns their number.
size_t Grammar::add_beginnings(Rule& rule, int alternative, const std::string& file) const {
  const Symbol& first = rule.alternatives[size_t(alternative)].symbols[0];
  const auto add = [&](const std::string& token) {
    check(rule.begins.emplace(token, alternative).second, file, ", line ", rule.line,
          ": two alternatives of ", rule.name, " begin with \"", token,
          "\"; the next token must decide (take the common beginning out)");
  };
  if (first.rule < 0) {
    add(first.token);
    return 1;
  }
  const auto& begins = rules_[first.rule].begins;
  for (const auto& [token, choice] : begins) add(token);
  return begins.size();
}

void Grammar::check_reachable(const std::string& file) const {
  std::vector<bool> reached(rules_.size(), false);
  reached[0] = true;
  for (std::vector<int> to_visit{0}; !to_visit.empty();) {
    const Rule& rule = rules_[to_visit.back()];
    to_visit.pop_back();
    for (const Alternative& alternative : rule.alternatives)
      for (const Symbol& symbol : alternative.symbols)
        if (symbol.rule >= 0 && !reached[symbol.rule]) {
          reached[symbol.rule] = true;
          to_visit.push_back(symbol.rule);
        }
  }
  for (size_t r = 0; r < rules_.size(); ++r)
    check(reached[r], file, ", line ", rules_[r].line, ": no sentence can use ", rules_[r].name,
          "; the sentence is the first rule");
}

}  // namespace gradus
