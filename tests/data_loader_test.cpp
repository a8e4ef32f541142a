// Windows: training batches are functions of (seed, step, sample); every held-out byte is scored once.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "src/core/rng.h"
#include "src/data/loader.h"
#include "src/data/tokenizer.h"

namespace gradus {
namespace {

Corpus random_corpus(int64_t train, int64_t held_out) {
  Corpus corpus;
  Rng rng(17, uint64_t(train));
  for (int64_t i = 0; i < train + held_out; ++i) corpus.bytes += char(rng.below(256));
  corpus.split = train;
  return corpus;
}

struct Windows {
  std::vector<int32_t> inputs, targets;
  explicit Windows(int64_t count) : inputs(size_t(count), -7), targets(size_t(count), -7) {}
  bool operator==(const Windows&) const = default;
};

Windows training(const Loader& loader, int64_t step, int64_t first, int64_t count, int64_t T) {
  Windows w(count * T);
  loader.train_windows(step, first, count, w.inputs.data(), w.targets.data());
  return w;
}

TEST(L03_Loader, TrainingWindowsAreFunctionsOfSeedStepAndSample) {
  const Corpus corpus = random_corpus(5000, 100);
  const int64_t T = 33;
  const Loader loader(corpus, T, 1), same(corpus, T, 1), other(corpus, T, 2);
  const Windows batch = training(loader, 12345, 0, 8, T);
  EXPECT_EQ(batch, training(same, 12345, 0, 8, T));  // no state: steps before it do not matter
  EXPECT_NE(batch, training(other, 12345, 0, 8, T));
  EXPECT_NE(batch, training(loader, 12346, 0, 8, T));
  for (const int64_t part : {1, 2, 4})  // micro-batches see the samples of the whole batch
    for (int64_t first = 0; first < 8; first += part) {
      const Windows w = training(loader, 12345, first, part, T);
      EXPECT_TRUE(std::equal(w.inputs.begin(), w.inputs.end(), batch.inputs.begin() + first * T));
      EXPECT_TRUE(std::equal(w.targets.begin(), w.targets.end(), batch.targets.begin() + first * T));
    }
  std::set<std::vector<int32_t>> distinct;
  for (int64_t b = 0; b < 8; ++b)
    distinct.emplace(batch.inputs.begin() + b * T, batch.inputs.begin() + (b + 1) * T);
  EXPECT_EQ(distinct.size(), 8u);
}

TEST(L03_Loader, TrainingWindowsLieInTheTrainingBytesAndStartUniformly) {
  Corpus corpus;  // every training byte is its own position, every held-out byte is 255
  for (int i = 0; i < 107; ++i) corpus.bytes += char(i);
  corpus.split = int64_t(corpus.bytes.size());
  corpus.bytes += std::string(20, '\xFF');
  const int64_t T = 7, starts = corpus.split - T, draws = 20000;  // starts 0 to 99
  const Loader loader(corpus, T, 3);
  std::vector<int> count(size_t(starts), 0);
  for (int64_t step = 0; step < draws / 4; ++step) {
    const Windows w = training(loader, step, 0, 4, T);
    for (int64_t b = 0; b < 4; ++b) {
      const int32_t start = w.inputs[size_t(b * T)];
      for (int64_t t = 0; t < T; ++t) {
        ASSERT_EQ(w.inputs[size_t(b * T + t)], start + t);
        ASSERT_EQ(w.targets[size_t(b * T + t)], start + t + 1);
      }
      ASSERT_LT(start + T, corpus.split) << "a training target is held out";
      ++count.at(size_t(start));
    }
  }
  // Pearson's statistic has mean 99 and variance 198 for 100 equal cells; 5 standard deviations.
  const double expected = double(draws) / double(starts);
  double statistic = 0;
  for (const int c : count) statistic += (c - expected) * (c - expected) / expected;
  EXPECT_NEAR(statistic, double(starts - 1), 5 * std::sqrt(2.0 * double(starts - 1)));
}

TEST(L03_Loader, EveryHeldOutByteIsScoredOnceWithHalfAWindowOfContext) {
  for (const int64_t T : {1, 2, 3, 7, 64})
    for (const int64_t held_out : {1, 5, 31, 32, 33, 64, 257})
      for (const int64_t count : {1, 3, 8}) {
        const Corpus corpus = random_corpus(T + 1, held_out);
        const Loader loader(corpus, T, 1);
        int64_t next = corpus.split;  // the byte that should be scored next
        for (int64_t first = 0; first < loader.held_out_windows(); first += count) {
          Windows w(count * T);
          const std::vector<int64_t> scored =
              loader.held_out_windows(first, count, w.inputs.data(), w.targets.data());
          ASSERT_EQ(int64_t(scored.size()), count);
          for (int64_t b = 0; b < count; ++b)
            for (int64_t t = T - scored[size_t(b)]; t < T; ++t, ++next) {
              ASSERT_EQ(w.targets[size_t(b * T + t)], uint8_t(corpus.bytes.at(size_t(next))));
              ASSERT_GE(t + 1, T / 2) << "too little context";
              for (int64_t back = 0; back <= t; ++back)  // and that context is what stands before it
                ASSERT_EQ(w.inputs[size_t(b * T + t - back)],
                          uint8_t(corpus.bytes.at(size_t(next - 1 - back))));
            }
        }
        EXPECT_EQ(next, int64_t(corpus.bytes.size())) << "T " << T << ", " << held_out << " held out";
      }
}

// Bytes that are their own position: of 0 to 6 trained, of 7 to 11 held out.
Corpus numbered() {
  Corpus corpus;
  for (int i = 0; i < 12; ++i) corpus.bytes += char(i);
  corpus.split = 7;
  return corpus;
}

// By hand, T = 4: each window scores two bytes, the third only the last one of all.
TEST(L03_Loader, HeldOutWindowsByHand) {
  const Corpus corpus = numbered();
  const Loader loader(corpus, 4, 1);
  EXPECT_EQ(loader.held_out_windows(), 3);
  Windows w(4 * 4);
  EXPECT_EQ(loader.held_out_windows(0, 4, w.inputs.data(), w.targets.data()),
            (std::vector<int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(w.inputs, (std::vector<int32_t>{4, 5, 6, 7, 6, 7, 8, 9, 7, 8, 9, 10, 7, 8, 9, 10}));
  EXPECT_EQ(w.targets, (std::vector<int32_t>{5, 6, 7, 8, 7, 8, 9, 10, 8, 9, 10, 11, 8, 9, 10, 11}));

  const Loader odd(corpus, 5, 1);  // three bytes each: 7 8 9, 10 11
  EXPECT_EQ(odd.held_out_windows(), 2);
  Windows o(2 * 5);
  EXPECT_EQ(odd.held_out_windows(0, 2, o.inputs.data(), o.targets.data()), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(o.inputs, (std::vector<int32_t>{4, 5, 6, 7, 8, 6, 7, 8, 9, 10}));

  const Loader one(corpus, 1, 1);  // a byte each, from the byte before
  EXPECT_EQ(one.held_out_windows(), 5);
  Windows b(5);
  EXPECT_EQ(one.held_out_windows(0, 5, b.inputs.data(), b.targets.data()),
            (std::vector<int64_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(b.inputs, (std::vector<int32_t>{6, 7, 8, 9, 10}));
  EXPECT_EQ(b.targets, (std::vector<int32_t>{7, 8, 9, 10, 11}));
}

TEST(L03_Loader, WindowsPastTheLastAreCopiesThatScoreNothing) {
  const Corpus corpus = numbered();
  const Loader loader(corpus, 4, 1);
  Windows last(4), past(3 * 4);
  EXPECT_EQ(loader.held_out_windows(2, 1, last.inputs.data(), last.targets.data()), std::vector<int64_t>{1});
  EXPECT_EQ(loader.held_out_windows(3, 3, past.inputs.data(), past.targets.data()),
            (std::vector<int64_t>{0, 0, 0}));
  for (size_t i = 0; i < past.inputs.size(); ++i) {
    EXPECT_EQ(past.inputs[i], last.inputs[i % 4]);
    EXPECT_EQ(past.targets[i], last.targets[i % 4]);
  }
  EXPECT_EQ(loader.held_out_windows(0, 0, nullptr, nullptr), std::vector<int64_t>{});
}

TEST(L03_Loader, TheFirstAndTheLastTrainingWindowAreDrawn) {
  const Corpus corpus = numbered();
  const Loader loader(corpus, 4, 1), only(corpus, 6, 1);
  std::set<int32_t> starts;
  for (int64_t step = 0; step < 200; ++step) {
    Windows w(4), whole(6);
    loader.train_windows(step, 0, 1, w.inputs.data(), w.targets.data());
    starts.insert(w.inputs[0]);
    ASSERT_EQ(w.targets[3], w.inputs[0] + 4);
    only.train_windows(step, 0, 1, whole.inputs.data(), whole.targets.data());
    ASSERT_EQ(whole.inputs[0], 0) << "there is but one window of 6 and the byte that follows";
    ASSERT_EQ(whole.targets[5], 6);
  }
  EXPECT_EQ(starts, (std::set<int32_t>{0, 1, 2}));
}

TEST(L03_Loader, LargeStepsAndSamplesAreOthers) {
  const Corpus corpus = random_corpus(5000, 100);
  const Loader loader(corpus, 16, 1);
  std::set<std::vector<int32_t>> seen;
  const int64_t large = int64_t(1) << 31;
  for (const int64_t step : {int64_t(0), int64_t(1), int64_t(2), large - 1})
    for (const int64_t sample : {int64_t(0), int64_t(1), int64_t(2), large, 2 * large - 1})
      seen.insert(training(loader, step, sample, 1, 16).inputs);
  EXPECT_GE(seen.size(), 19u) << "of 20; two may begin at one of the 4984 places";
}

// Bytes are tokens of 0 to 255, never negative.
TEST(L03_Loader, BytesAreNotSigned) {
  Corpus corpus;
  corpus.bytes = std::string("\xFF\x80\x7F\xFE", 4);
  corpus.split = 3;
  const Loader loader(corpus, 2, 1);
  Windows w(2), h(2);
  loader.train_windows(0, 0, 1, w.inputs.data(), w.targets.data());
  EXPECT_EQ(w.inputs, (std::vector<int32_t>{255, 128}));
  EXPECT_EQ(w.targets, (std::vector<int32_t>{128, 127}));
  loader.held_out_windows(0, 1, h.inputs.data(), h.targets.data());
  EXPECT_EQ(h.targets, (std::vector<int32_t>{127, 254}));
}

TEST(L03_Loader, ACorpusShorterThanOneWindowIsRefused) {
  const auto message = [](int64_t train, int64_t held_out, int64_t T) -> std::string {
    const Corpus corpus = random_corpus(train, held_out);
    try {
      Loader(corpus, T, 1);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(message(9, 1, 8), "");
  EXPECT_NE(message(8, 1, 8).find("windows of 8 need at least 9 and 1"), std::string::npos);
  EXPECT_NE(message(100, 0, 8), "");
  EXPECT_NE(message(0, 0, 8), "");
  EXPECT_NE(message(100, 10, 0), "");
  EXPECT_NE(message(100, 10, -3), "");
}

TEST(L03_Tokenizer, BytesRoundTripAndOthersAreRefused) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += char(i);
  const std::vector<int32_t> tokens = ByteTokenizer::encode(all);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(tokens[size_t(i)], i);
  EXPECT_EQ(ByteTokenizer::decode(tokens), all);
  EXPECT_THROW(ByteTokenizer::decode({256}), Error);
  EXPECT_THROW(ByteTokenizer::decode({-1}), Error);
}

TEST(L03_Tokenizer, TokensAreBytes) {
  EXPECT_EQ(ByteTokenizer::encode(std::string("a\xC3\xA9\0", 4)), (std::vector<int32_t>{97, 195, 169, 0}));
  EXPECT_TRUE(ByteTokenizer::encode("").empty());
  EXPECT_EQ(ByteTokenizer::decode({0, 255}), std::string("\0\xFF", 2));
  EXPECT_EQ(ByteTokenizer::decode({}), "");
  EXPECT_EQ(ByteTokenizer::kVocabulary, 256);
  EXPECT_EQ(ByteTokenizer::kEndOfDocument, 0);
  try {
    ByteTokenizer::decode({5, 256, 7});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("token 256 is not a byte"), std::string::npos) << e.what();
  }
}

TEST(L03_Tokenizer, PrintableOnBothSidesOfEveryRange) {
  EXPECT_EQ(printable("\x1F\x20\x7E\x7F\x01"), "\\x1F ~\\x7F\\x01");
  EXPECT_EQ(printable("\xC2\x80\xC2\x9F\xC2\xA0"), "\\xC2\\x80\\xC2\\x9F\xC2\xA0");
  EXPECT_EQ(printable("\n\t\v\b\r"), "\n\t\\x0B\\x08\\x0D");
  EXPECT_EQ(printable("a\\x00\"'"), "a\\x00\"'") << "what is printable stays as it is";
  EXPECT_EQ(printable("\xF0\x9F\x98\x80|\xF0\x9F\x98"), "\xF0\x9F\x98\x80|\\xF0\\x9F\\x98");
  EXPECT_EQ(printable("\xC3\xA9\xE2\x82\xAC"), "\xC3\xA9\xE2\x82\xAC");
  EXPECT_EQ(printable("\xC2"), "\\xC2");
  EXPECT_EQ(printable(""), "");
}

TEST(L03_Tokenizer, PrintableTextCannotGarbleATerminal) {
  EXPECT_EQ(printable("steps\n\tup \xC3\xA9 \xEA\xB3\x84"), "steps\n\tup \xC3\xA9 \xEA\xB3\x84");
  EXPECT_EQ(printable(std::string("\0\x1B[2J\r\x7F", 7)), "\\x00\\x1B[2J\\x0D\\x7F");
  EXPECT_EQ(printable("\xE9 \xC3"), "\\xE9 \\xC3");  // no UTF-8, cut off
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            "\\xC2\\x9B"
            "2J");  // the one-character form of ESC [
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string out = printable(std::string{char(a), char(b)});
      for (const char c : out) ASSERT_TRUE(uint8_t(c) >= 0x20 || c == '\n' || c == '\t') << a << " " << b;
    }
}

}  // namespace
}  // namespace gradus
