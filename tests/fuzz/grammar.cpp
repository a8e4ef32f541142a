// Grammars: a text is rejected with a message, or sentences can be drawn from it. Each sentence is then a
// text of the grammar and has a probability, and that of several sentences is the product.
#include "src/data/grammar.h"

#include <optional>

#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

// Rules of random alternatives that begin with different tokens. There are few rules, so many use each other.
std::string rules_of(Rng& rng) {
  const uint64_t rules = 1 + rng.below(6);
  std::string text;
  for (uint64_t r = 0; r < rules; ++r) {
    text += "r" + std::to_string(r) + " -> ";
    const uint64_t count = 1 + rng.below(3);
    const bool weighed = rng.below(2) == 0;
    const uint64_t first = 1 + rng.below(9998);
    for (uint64_t a = 0; a < count; ++a) {
      if (a > 0) text += " | ";
      const double share = count == 1 ? 1
                           : a == 0   ? double(first) / 1e4
                                      : (1 - double(first) / 1e4) / double(count - 1);
      if (weighed) text += std::to_string(share) + " ";
      text += "\"" + std::string(1, char('a' + a)) + std::to_string(r) + "\"";
      for (uint64_t n = rng.below(4); n > 0; --n)
        text += rng.below(2) ? " r" + std::to_string(rng.below(rules)) : std::string(" \"the\"");
    }
    text += rng.below(40) ? "\n" : " ";
  }
  return text;
}

// Rules that each use the next one: a long chain, or one that doubles with each link.
std::string chain_of(Rng& rng) {
  const uint64_t length = uint64_t(1) << rng.below(17), uses = 1 + rng.below(3);
  const bool begins = rng.below(2) == 0;
  std::string text;
  for (uint64_t r = 0; r < length; ++r) {
    text += "r" + std::to_string(r) + " ->" + (begins ? " \"x\"" : "");
    for (uint64_t n = 0; n < uses; ++n) text += " r" + std::to_string(r + 1);
    text += "\n";
  }
  return text + "r" + std::to_string(length) + " -> \"end\"\n";
}

}  // namespace

std::string sample(Rng& rng) { return rng.below(100) ? rules_of(rng) : chain_of(rng); }

}  // namespace gradus::fuzz

static void check_sentences(const gradus::Grammar& grammar) {
  using namespace gradus;
  EXPECT_TRUE(grammar.mean_bytes() >= 2 && std::isfinite(grammar.mean_bytes())) << grammar.mean_bytes();
  EXPECT_TRUE(grammar.entropy() >= -1e-9 && std::isfinite(grammar.entropy())) << grammar.entropy();
  Rng rng(1, 0);
  std::string all;
  double sum = 0;
  for (int i = 0; i < 5; ++i) {
    std::string sentence;
    try {
      sentence = grammar.generate(rng);
    } catch (const Error&) {  // too long
      continue;
    }
    const double p = grammar.log_probability(sentence);
    EXPECT_TRUE(p <= 1e-9 && std::isfinite(p)) << p << " of " << sentence.substr(0, 1000);
    sum += p, all += sentence;
  }
  EXPECT_NEAR(grammar.log_probability(all), sum, 1e-9 * (1 + std::abs(sum)));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::optional<gradus::Grammar> grammar;
  try {
    grammar = gradus::Grammar::parse({reinterpret_cast<const char*>(bytes), size});
  } catch (const gradus::Error&) {
    return 0;
  }
  check_sentences(*grammar);
  return 0;
}
