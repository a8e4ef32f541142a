// An encoder caches pieces, stops after a given number of tokens, and drops merges; its results are otherwise
// unchanged.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

#include "tests/data/byte_pairs_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr std::string_view kLetters = "eeeettaaoinsrh  \n'.1";

struct L14_BytePairEncoder : ::testing::Test {
  std::string text(size_t bytes, uint64_t seed) {
    Rng rng(seed, 9);
    return random_text(rng, bytes, kLetters);
  }
  Ids without_memory(std::string_view text) {
    Ids ids;
    for (; !text.empty(); text.remove_prefix(first_piece(text)))
      pairs.encode_piece(text.substr(0, first_piece(text)), ids);
    return ids;
  }
  Ids with_dropout(std::string_view text, double probability, uint64_t seed) {
    Ids ids;
    MergeDropout dropout{probability, Rng(seed, 0)};
    BytePairEncoder(pairs).encode(text, SIZE_MAX, ids, &dropout);
    return ids;
  }
  const BytePairs pairs = BytePairs::learn(text(20'000, 1), 300);
};

// More different pieces than the cache holds, with lengths around the longest that it holds, each of them
// twice.
TEST_F(L14_BytePairEncoder, RememberingChangesNothing) {
  const std::string once = text(1'500'000, 2);
  BytePairEncoder encoder(pairs);
  const Ids expected = without_memory(once);
  EXPECT_EQ(encoder.encode(once), expected);
  EXPECT_EQ(encoder.encode(once), expected);
  for (size_t n = 1; n < 300; ++n) {
    const std::string bytes(n, 'z'), letters = text(n, 3 + n);
    for (int round = 0; round < 2; ++round) {
      ASSERT_EQ(encoder.encode(bytes), without_memory(bytes)) << n;
      ASSERT_EQ(encoder.encode(letters), without_memory(letters)) << n;
    }
  }
}

TEST_F(L14_BytePairEncoder, TwoEncodersInterleaved) {
  const BytePairs other = BytePairs::learn("the other one has other merges, the others", 20);
  BytePairEncoder a(pairs), b(other);
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string some = text(50, i % 20);
    ASSERT_EQ(a.encode(some), without_memory(some));
    ASSERT_EQ(other.decode(b.encode(some)), some);
    ASSERT_EQ(b.encode("other"), BytePairEncoder(other).encode("other"));
  }
}

TEST_F(L14_BytePairEncoder, OneEncoderPerThreadOverTheSamePairs) {
  const std::string once = text(200'000, 4);
  std::vector<Ids> ids(2);
  {
    std::vector<std::jthread> threads;
    for (Ids& to : ids) threads.emplace_back([&] { to = BytePairEncoder(pairs).encode(once); });
  }
  EXPECT_EQ(ids[0], without_memory(once));
  EXPECT_EQ(ids[1], ids[0]);
}

TEST_F(L14_BytePairEncoder, AtLeastSoManyIds) {
  const std::string some = text(200, 5);
  std::vector<size_t> ends;  // of pieces, in tokens
  Ids piecewise;
  for (std::string_view rest = some; !rest.empty(); rest.remove_prefix(first_piece(rest))) {
    pairs.encode_piece(rest.substr(0, first_piece(rest)), piecewise);
    ends.push_back(piecewise.size());
  }
  const Ids all = without_memory(some), before{7, 7};
  BytePairEncoder encoder(pairs);
  for (size_t n = 0; n <= all.size() + 3; ++n) {
    Ids ids = before;
    encoder.encode(some, before.size() + n, ids);
    size_t expected = n == 0 ? 0 : ends.back();
    for (const size_t end : ends)
      if (n > 0 && end >= n) expected = std::min(expected, end);
    ASSERT_EQ(ids.size(), before.size() + expected) << n;
    ASSERT_TRUE(std::equal(before.begin(), before.end(), ids.begin()));
    ASSERT_TRUE(std::equal(ids.begin() + 2, ids.end(), all.begin()));
  }
  Ids enough(5, 1);
  encoder.encode(some, 5, enough);
  EXPECT_EQ(enough, Ids(5, 1));
}

TEST_F(L14_BytePairEncoder, DropoutOfZeroDropsNothing) {
  const std::string some = text(5000, 6);
  EXPECT_EQ(with_dropout(some, 0, 1), without_memory(some));
}

TEST_F(L14_BytePairEncoder, AProbabilityIsZeroToOne) {
  for (const double p : {-0.1, 1.1, std::nan("")})
    expect_refused("merges cannot be dropped with probability ", [&] { with_dropout("a", p, 1); });
}

TEST_F(L14_BytePairEncoder, DropoutOfOneLeavesBytes) {
  const Ids ids = with_dropout("then the rest", 1, 1);
  EXPECT_EQ(parts_of(pairs, ids), "t|h|e|n| |t|h|e| |r|e|s|t");
}

TEST_F(L14_BytePairEncoder, DropoutIsAFunctionOfItsRng) {
  const std::string some = text(5000, 7);
  const Ids ids = with_dropout(some, 0.3, 1);
  EXPECT_EQ(with_dropout(some, 0.3, 1), ids);
  EXPECT_NE(with_dropout(some, 0.3, 2), ids);
  EXPECT_EQ(pairs.decode(ids), some);
  EXPECT_GT(ids.size(), without_memory(some).size());
}

TEST_F(L14_BytePairEncoder, DropoutNeitherReadsWhatIsRememberedNorIsRemembered) {
  const std::string some = text(5000, 8);
  BytePairEncoder encoder(pairs);
  MergeDropout dropout{1, Rng(1, 0)};
  Ids first, second;
  encoder.encode(some, SIZE_MAX, first, &dropout);
  EXPECT_EQ(first.size(), some.size());
  EXPECT_EQ(encoder.encode(some), without_memory(some));
  encoder.encode(some, SIZE_MAX, second, &dropout);
  EXPECT_EQ(second, first);
}

// How often each segmentation occurs, compared with its probability: within 5 standard deviations.
void expect_shares(const BytePairs& pairs, std::string_view piece, double p,
                   const std::map<std::string, double>& probabilities) {
  constexpr int kTimes = 40'000;
  MergeDropout dropout{p, Rng(5, 0)};
  std::map<std::string, int> times;
  for (int i = 0; i < kTimes; ++i) {
    Ids ids;
    pairs.encode_piece(piece, ids, &dropout);
    ++times[parts_of(pairs, ids)];
  }
  EXPECT_EQ(times.size(), probabilities.size());
  for (const auto& [parts, probability] : probabilities)
    EXPECT_NEAR(double(times[parts]) / kTimes, probability,
                5 * std::sqrt(probability * (1 - probability) / kTimes))
        << parts << " at p = " << p;
}

TEST_F(L14_BytePairEncoder, AMergeOfTwoBytesIsDroppedWithItsProbability) {
  for (const double p : {0.1, 0.5, 0.8})
    expect_shares(byte_pairs_of({{"a", "b"}}), "ab", p, {{"a|b", p}, {"ab", 1 - p}});
}

// The probabilities of "abcdef", where ab, cd and ef can be merged, from the state in which those in `merged`
// are.
void add_probabilities(std::array<bool, 3> merged, double p, double so_far,
                       std::map<std::string, double>& to) {
  double all_dropped = so_far;
  for (size_t i = 0; i < 3; ++i) {
    if (merged[i]) continue;
    std::array<bool, 3> next = merged;
    next[i] = true;
    add_probabilities(next, p, all_dropped * (1 - p), to);
    all_dropped *= p;
  }
  to[std::string(merged[0] ? "ab" : "a|b") + (merged[1] ? "|cd|" : "|c|d|") + (merged[2] ? "ef" : "e|f")] +=
      all_dropped;
}

// A merge that was dropped may be made at the next step, where it has a new chance.
TEST_F(L14_BytePairEncoder, EachStepDropsAnew) {
  for (const double p : {0.1, 0.5, 0.8}) {
    std::map<std::string, double> probabilities;
    add_probabilities({}, p, 1, probabilities);
    expect_shares(byte_pairs_of({{"a", "b"}, {"c", "d"}, {"e", "f"}}), "abcdef", p, probabilities);
  }
}

TEST_F(L14_BytePairEncoder, IfTheBestMergeIsDroppedTheNextIsMade) {
  for (const double p : {0.1, 0.5}) {
    const double q = 1 - p;
    expect_shares(byte_pairs_of({{"a", "b"}, {"b", "c"}, {"ab", "c"}}), "abc", p,
                  {{"abc", q * q}, {"ab|c", q * p}, {"a|bc", p * q}, {"a|b|c", p * p}});
  }
}

}  // namespace
}  // namespace gradus
