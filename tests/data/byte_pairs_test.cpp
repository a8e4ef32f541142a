// Byte pairs: pieces, learning, encoding and decoding, compared with slow implementations of their
// definitions.
#include <gtest/gtest.h>

#include <map>

#include "tests/data/byte_pairs_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Pair = BytePairs::Pair;

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  for (; !text.empty(); text.remove_prefix(pieces.back().size()))
    pieces.emplace_back(text, 0, first_piece(text));
  return pieces;
}
std::string split(std::string_view text) {
  std::string all;
  for (const std::string& piece : pieces_of(text)) all += "[" + piece + "]";
  return all;
}

TEST(L14_BytePairs, PiecesAreRunsOfLettersOfNumbersAndOfOthersWithOneSpaceBefore) {
  EXPECT_EQ(split("Hello there"), "[Hello][ there]");
  EXPECT_EQ(split("x2y 12ab"), "[x][2][y][ 12][ab]");
  EXPECT_EQ(split("a, b ;-) c_d"), "[a][,][ b][ ;-)][ c][_][d]");
  EXPECT_EQ(split("3.14 -1"), "[3][.][14][ -][1]");
}

TEST(L14_BytePairs, ContractionsArePieces) {
  EXPECT_EQ(split("it's don't we're I've I'm he'll she'd"),
            "[it]['s][ don]['t][ we]['re][ I]['ve][ I]['m][ he]['ll][ she]['d]");
  EXPECT_EQ(split("'s's"), "['s]['s]");
  EXPECT_EQ(split("'sun"), "['s][un]");
  EXPECT_EQ(split("DON'T 'x ' 's '"), "[DON]['][T][ '][x][ '][ '][s][ ']");
  EXPECT_EQ(split("''s '"),
            "['']"
            "[s][ ']");
  EXPECT_EQ(split("'r'v'l"), "['][r]['][v]['][l]");
}

TEST(L14_BytePairs, WhiteSpaceLeavesItsLastCharacterToWhatFollows) {
  EXPECT_EQ(split("a   b"), "[a][  ][ b]");
  EXPECT_EQ(split("a\nb"), "[a][\n][b]");
  EXPECT_EQ(split("a\n\n b"), "[a][\n\n][ b]");
  EXPECT_EQ(split("a \nb"), "[a][ ][\n][b]");
  EXPECT_EQ(split("\t\tb"), "[\t][\t][b]");
  EXPECT_EQ(split("  1 !"), "[ ][ 1][ !]");
}

TEST(L14_BytePairs, WhiteSpaceAtTheEndIsOnePiece) {
  EXPECT_EQ(split("a   "), "[a][   ]");
  EXPECT_EQ(split(" "), "[ ]");
  EXPECT_EQ(split("\n \t"), "[\n \t]");
}

TEST(L14_BytePairs, PiecesOfOtherScripts) {
  EXPECT_EQ(split("größer heißt"), "[größer][ heißt]");
  EXPECT_EQ(split("кошка сидит, ещё"), "[кошка][ сидит][,][ ещё]");
  EXPECT_EQ(split("猫は窓に。犬"), "[猫は窓に][。][犬]");
  EXPECT_EQ(split("Ⅷ ½٣x"), "[Ⅷ][ ½٣][x]");
  EXPECT_EQ(split("e\u0301a \U0001F600!"), "[e][\u0301][a][ \U0001F600!]");
}

// Only a blank can be the first character of a piece of a different class.
TEST(L14_BytePairs, OtherSpacesAreWhiteSpaceOnly) {
  EXPECT_EQ(split("a\u00A0b"), "[a][\u00A0][b]");
  EXPECT_EQ(split("a\u00A0\u00A0b"), "[a][\u00A0][\u00A0][b]");
  EXPECT_EQ(split("a\u00A0 b"), "[a][\u00A0][ b]");
  EXPECT_EQ(split("a \u3000b"), "[a][ ][\u3000][b]");
  EXPECT_EQ(split("a\u200Bb"), "[a][\u200B][b]");
}

TEST(L14_BytePairs, BytesThatAreNoUtf8AreOthers) {
  EXPECT_EQ(split("a\xFF\xC3 b"), "[a][\xFF\xC3][ b]");
  EXPECT_EQ(split("\xE4\xBD"), "[\xE4\xBD]");
  EXPECT_EQ(split("a \xC2"), "[a][ \xC2]");
  EXPECT_EQ(split(std::string_view("a\0b", 3)), std::string("[a][\0][b]", 9));
}

// The definition: count all pairs again after each merge, take the most frequent one, merge it everywhere
// from the left.
std::vector<Pair> naive_merges(const std::string& text, int64_t merges) {
  std::vector<Ids> words;
  for (const std::string& piece : pieces_of(text)) {
    words.emplace_back();
    for (const char c : piece)
      words.back().push_back(
          int32_t(std::find(byte_order().begin(), byte_order().end(), uint8_t(c)) - byte_order().begin()));
  }
  std::vector<Pair> learned;
  while (int64_t(learned.size()) < merges) {
    std::map<Pair, int64_t> counts;
    for (const Ids& w : words)
      for (size_t i = 0; i + 1 < w.size(); ++i) ++counts[{w[i], w[i + 1]}];
    Pair best{-1, -1};
    int64_t most = 1;
    for (const auto& [pair, times] : counts)
      if (times > most) best = pair, most = times;
    if (most < 2) break;
    const int32_t merged = 256 + int32_t(learned.size());
    learned.push_back(best);
    for (Ids& w : words)
      for (size_t i = 0; i + 1 < w.size(); ++i)
        if (Pair(w[i], w[i + 1]) == best) w[i] = merged, w.erase(w.begin() + ptrdiff_t(i) + 1);
  }
  return learned;
}

TEST(L14_BytePairs, LearnsWhatCountingAnewLearns) {
  Rng rng(1, 0);
  for (const std::string_view alphabet : {"ab ", "aaab ", "abcdefgh  \n", "ab'st1\xC3\xA9 "})
    for (int round = 0; round < 40; ++round) {
      const std::string text = random_text(rng, rng.below(400), alphabet);
      for (const int64_t merges : {3, 1000})
        ASSERT_EQ(BytePairs::learn(text, merges).merges(), naive_merges(text, merges)) << text;
    }
}

TEST(L14_Exercises, AMergeChangesThePairsAroundIt) {
  RecordProperty("exercise", "14.5");
  const auto learned = [](const std::string& text, int64_t merges) {
    std::string tokens;
    const BytePairs pairs = BytePairs::learn(text, merges);
    for (size_t id = 256; id < pairs.tokens().size(); ++id) tokens += "[" + pairs.tokens()[id] + "]";
    return tokens;
  };
  EXPECT_EQ(learned("ab\nab\nab", 1), "[ab]") << "the pair a, b occurs three times";
  EXPECT_EQ(learned("abc\nabc\nxbc", 2), "[bc][abc]")
      << "the new token bc has a left neighbour, a: this pair appears, and the pair a, b disappears";
  EXPECT_EQ(learned("abc\nabc\nabx", 2), "[ab][abc]")
      << "the new token ab has a right neighbour, c: this pair appears, and the pair b, c disappears";
  EXPECT_EQ(learned("aba\naba\nacb", 3), "[ab][aba]")
      << "a merged pair is one part; the parts after it move forward";
  EXPECT_EQ(learned("abab\nabab", 3), "[ab][abab]")
      << "of two merges side by side, the second has the new token of the first as its neighbour";
  EXPECT_EQ(learned("aaaa\naaaa", 3), "[aa][aaaa]")
      << "four a are two pairs, from the left: a part of one merge cannot be a part of the next";
}

TEST(L14_BytePairs, OfEquallyFrequentPairsTheSmallerIdsAreFirst) {
  EXPECT_EQ(BytePairs::learn("xb\nxb\nya\nya\nxa\nxa", 1).tokens().back(), "xa");
  EXPECT_EQ(BytePairs::learn("cd cd\nba ba", 1).tokens().back(), "ba");
}

TEST(L14_BytePairs, LearnsNothingFromPairsThatOccurOnceAndNoMoreThanIsAsked) {
  EXPECT_EQ(BytePairs::learn("abc", 10).merges().size(), 0u);
  EXPECT_EQ(BytePairs::learn("", 10).vocabulary(), 256);
  EXPECT_EQ(BytePairs::learn("abab abab abab", 2).merges().size(), 2u);
  EXPECT_EQ(BytePairs::learn("abab abab abab", 0).merges().size(), 0u);
  expect_refused("-1 merges", [] { BytePairs::learn("a", -1); });
}

TEST(L14_BytePairs, TheFirstTokensAreTheBytesInTheOrderOfTheFiles) {
  const BytePairs pairs = BytePairs::learn("abab", 1);
  for (size_t id = 0; id < 256; ++id) EXPECT_EQ(pairs.tokens()[id], std::string(1, char(byte_order()[id])));
  EXPECT_EQ(pairs.tokens()[0], "!");
  EXPECT_EQ(pairs.tokens()[256], "ab");
}

// The definition: of all pairs the first-learned one is merged, at its first place; repeatedly.
Ids naive_tokens(const BytePairs& pairs, std::string_view piece) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (;;) {
    size_t best = pairs.merges().size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      for (size_t rank = 0; rank < best; ++rank) {
        const auto [left, right] = pairs.merges()[rank];
        if (parts[i] == pairs.tokens()[size_t(left)] && parts[i + 1] == pairs.tokens()[size_t(right)])
          best = rank, at = i;
      }
    if (best == pairs.merges().size()) break;
    parts[at] += parts[at + 1], parts.erase(parts.begin() + ptrdiff_t(at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts)
    ids.push_back(
        int32_t(std::find(pairs.tokens().begin(), pairs.tokens().end(), part) - pairs.tokens().begin()));
  return ids;
}

// Merges of parts drawn at random, in an order that no text needs to have; some make the same token.
BytePairs random_pairs(Rng& rng, std::string_view alphabet, size_t merges) {
  std::vector<std::string> made;
  for (const char c : alphabet) made.emplace_back(1, c);
  std::vector<std::pair<std::string, std::string>> pairs;
  while (pairs.size() < merges) {
    const std::pair<std::string, std::string> pair(made[rng.below(made.size())],
                                                   made[rng.below(made.size())]);
    if (std::find(pairs.begin(), pairs.end(), pair) != pairs.end()) continue;
    pairs.push_back(pair);
    const std::string both = pair.first + pair.second;
    if (std::find(made.begin(), made.end(), both) == made.end()) made.push_back(both);
  }
  return byte_pairs_of(pairs);
}

TEST(L14_BytePairs, EncodesWhatTryingEveryMergeEncodes) {
  Rng rng(2, 0);
  for (const std::string_view alphabet : {"a", "ab", "abc"})
    for (int round = 0; round < 30; ++round) {
      const BytePairs pairs = random_pairs(rng, alphabet, alphabet.size() == 1 ? 5 : 12);
      for (int i = 0; i < 10; ++i) {
        const std::string piece = random_text(rng, 1 + rng.below(40), alphabet);
        Ids ids;
        pairs.encode_piece(piece, ids);
        ASSERT_EQ(parts_of(pairs, ids), parts_of(pairs, naive_tokens(pairs, piece))) << piece;
      }
    }
}

TEST(L14_BytePairs, OneByteRepeated) {
  const BytePairs pairs = byte_pairs_of({{"a", "a"}, {"aa", "aa"}, {"aa", "a"}, {"aaaa", "aaa"}});
  for (size_t n = 1; n < 70; ++n) {
    Ids ids;
    pairs.encode_piece(std::string(n, 'a'), ids);
    ASSERT_EQ(parts_of(pairs, ids), parts_of(pairs, naive_tokens(pairs, std::string(n, 'a')))) << n;
  }
}

// Takes n log n steps; with n^2 it would take an hour.
TEST(L14_BytePairs, AVeryLongPiece) {
  const BytePairs pairs = byte_pairs_of({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}});
  EXPECT_EQ(BytePairEncoder(pairs).encode(std::string(1'000'003, 'a')).size(), 125'000u + 2);
}

TEST(L14_BytePairs, DecodingGivesAnyBytesBack) {
  Rng rng(3, 0);
  const BytePairs pairs = BytePairs::learn(random_text(rng, 5000, "abc \n\xC3\xA9'"), 100);
  BytePairEncoder encoder(pairs);
  std::string all(256, ' ');
  for (int b = 0; b < 256; ++b) all[size_t(b)] = char(b);
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_text(rng, rng.below(300), round % 2 ? all : "abc \n\xC3\xA9'\xE2");
    ASSERT_EQ(pairs.decode(encoder.encode(text)), text);
  }
  EXPECT_EQ(pairs.decode({}), "");
  EXPECT_TRUE(encoder.encode("").empty());
}

TEST(L14_BytePairs, IdsThatAreNoTokensAreNotDecoded) {
  const BytePairs pairs = byte_pairs_of({{"a", "b"}});
  EXPECT_EQ(pairs.decode({256, 0}), "ab!");
  for (const int32_t id : {-1, 257, INT32_MAX, INT32_MIN})
    expect_refused("there is no token " + std::to_string(id) + "; there are 257", [&] {
      pairs.decode({0, id});
    });
}

TEST(L14_BytePairs, WhatIsNoVocabularyIsRefused) {
  const BytePairs good = byte_pairs_of({{"a", "b"}, {"ab", "c"}});
  const auto refused = [&](const std::string& part, const auto& change) {
    std::vector<std::string> tokens = good.tokens();
    std::vector<Pair> merges = good.merges();
    change(tokens, merges);
    expect_refused("byte pairs: " + part, [&] { BytePairs(tokens, merges); });
  };
  refused("tokens 256 and 258 are the same", [](auto& t, auto&) { t.push_back("ab"); });
  refused("token 258 has no bytes", [](auto& t, auto&) { t.push_back(""); });
  refused("byte 33 is not a token", [](auto& t, auto&) { t[0] = "!!"; });
  refused("merge 2 is of token 258; there are 258", [](auto&, auto& m) { m.emplace_back(258, 0); });
  refused("merge 2 is of token -1", [](auto&, auto& m) { m.emplace_back(0, -1); });
  refused("merge 2 repeats an earlier merge", [](auto&, auto& m) { m.push_back(m[0]); });
  refused("merge 2 joins tokens 0 and 1 to 2 bytes that are not a token",
          [](auto&, auto& m) { m.emplace_back(0, 1); });
  refused("merge 0 is of token 256, which is not a byte and which no earlier merge makes",
          [](auto&, auto& m) { std::swap(m[0], m[1]); });
}

}  // namespace
}  // namespace gradus
