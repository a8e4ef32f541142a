// Windows: training batches are functions of (seed, step, sample); every held-out byte is scored once.
#include <gtest/gtest.h>

#include <set>

#include "tests/data/loader_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L03_Loader, TrainingWindowsAreFunctionsOfSeedStepAndSample) {
  const Corpus corpus = random_corpus(5000, 100);
  const int64_t T = 33;
  const Loader loader(corpus, T, 1), same(corpus, T, 1), other(corpus, T, 2);
  const Windows batch = training(loader, 12345, 0, 8, T);
  EXPECT_EQ(batch, training(same, 12345, 0, 8, T));  // no state: earlier steps do not matter
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

// Seeds have 64 bits; steps and samples of a step have 32 each, of which 1 is the smallest and 2^31 the
// largest.
TEST(L03_Loader, EveryBitOfSeedStepAndSampleDrawsAnotherWindow) {
  const Corpus corpus = random_corpus(1 << 20, 100);
  const int64_t T = 33;
  std::set<std::vector<int32_t>> distinct;
  for (int bit = 0; bit < 64; ++bit)
    distinct.insert(training(Loader(corpus, T, uint64_t(1) << bit), 0, 0, 1, T).inputs);
  const Loader loader(corpus, T, 0);
  for (int bit = 0; bit < 32; ++bit) {
    distinct.insert(training(loader, int64_t(1) << bit, 0, 1, T).inputs);
    distinct.insert(training(loader, 0, int64_t(1) << bit, 1, T).inputs);
  }
  EXPECT_EQ(distinct.size(), 128u);
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
              for (int64_t back = 0; back <= t; ++back)  // and its context is the text before it
                ASSERT_EQ(w.inputs[size_t(b * T + t - back)],
                          uint8_t(corpus.bytes.at(size_t(next - 1 - back))));
            }
        }
        EXPECT_EQ(next, int64_t(corpus.bytes.size())) << "T " << T << ", " << held_out << " held out";
      }
}

// The first byte that each window of an evaluation scores, and the number of bytes.
std::vector<std::pair<int64_t, int64_t>> scored_bytes(const Corpus& corpus, const Loader& loader, int64_t T) {
  std::vector<std::pair<int64_t, int64_t>> found;
  size_t from = 0;
  for (int64_t first = 0; first < loader.held_out_windows(); ++first) {
    Windows w(T);
    const int64_t count = loader.held_out_windows(first, 1, w.inputs.data(), w.targets.data())[0];
    std::string text;
    for (const int32_t id : w.targets) text += char(id);
    from = corpus.bytes.find(text, from);  // windows of 16 random bytes or more occur once
    found.emplace_back(int64_t(from) + T - count, count);
  }
  return found;
}

TEST(L03_Loader, OfALongTextAtMost256KiBAreScoredEvenlyDrawnAndTheSameEachTime) {
  const int64_t most = 256 << 10;
  for (const int64_t T : {16, 1023})
    for (const int64_t held_out : {most - 3, most, most + 1, 11 * most / 2}) {
      const Corpus corpus = random_corpus(5000, held_out);
      const auto scored = scored_bytes(corpus, Loader(corpus, T, 1), T);
      EXPECT_EQ(scored, scored_bytes(corpus, Loader(corpus, T, 2), T));
      EXPECT_EQ(scored[0].first, corpus.split);
      int64_t sum = 0, next = corpus.split, widest = 0, narrowest = held_out;
      for (const auto& [begin, count] : scored) {
        sum += count;
        if (begin > corpus.split)
          widest = std::max(widest, begin - next), narrowest = std::min(narrowest, begin - next);
        next = begin + count;
      }
      const int64_t stride = T - T / 2;
      EXPECT_LE(sum, most) << T << " of " << held_out;
      EXPECT_EQ(sum, Loader(corpus, T, 1).scored_tokens()) << T << " of " << held_out;
      EXPECT_GT(sum, std::min(held_out, most) - stride - (held_out > most ? stride : 1));
      EXPECT_TRUE(held_out > most || sum == held_out) << T << " of " << held_out;
      EXPECT_GE(narrowest, 0) << "a byte is scored twice";
      EXPECT_LE(widest - narrowest, stride) << "the windows are not evenly spread";
      EXPECT_LE(int64_t(corpus.bytes.size()) - next, widest + stride) << "the end is left out";
    }
}

TEST(L03_Loader, WindowsPastTheLastAreCopiesOfIt) {
  for (const int64_t held_out : {100, 1 << 20}) {
    const Corpus corpus = random_corpus(1000, held_out);
    const Loader loader(corpus, 16, 1);
    Windows w(3 * 16);
    const std::vector<int64_t> scored =
        loader.held_out_windows(loader.held_out_windows() - 1, 3, w.inputs.data(), w.targets.data());
    EXPECT_TRUE(scored[0] > 0 && scored[1] == 0 && scored[2] == 0) << held_out;
    for (int i = 16; i < 48; ++i) {
      EXPECT_EQ(w.inputs[i], w.inputs[i - 16]) << held_out;
      EXPECT_EQ(w.targets[i], w.targets[i - 16]) << held_out;
    }
  }
}

TEST(L03_Loader, OneWindowIsScoredHoweverLongItIs) {
  const Corpus corpus = random_corpus(600'001, 400'000);
  const Loader loader(corpus, 600'000, 1);
  EXPECT_EQ(loader.held_out_windows(), 1);
  EXPECT_EQ(loader.scored_tokens(), 300'000) << "a single window may score more than 256 KiB";
}

TEST(L03_Loader, ACorpusShorterThanOneWindowIsRefused) {
  const auto message = [](int64_t train, int64_t held_out, int64_t T) {
    const Corpus corpus = random_corpus(train, held_out);
    return refusal([&] { Loader(corpus, T, 1); });
  };
  EXPECT_EQ(message(9, 1, 8), "");
  EXPECT_NE(message(8, 1, 8).find("windows of 8 need at least 9 and 1"), std::string::npos);
  EXPECT_NE(message(100, 0, 8), "");
  EXPECT_NE(message(0, 0, 8), "");
  EXPECT_NE(message(100, 10, 0), "");
  EXPECT_NE(message(100, 10, -3), "");
}

// Bytes that are their own position: 0 to 6 for training, 7 to 11 held out.
Corpus numbered() {
  Corpus corpus;
  for (int i = 0; i < 12; ++i) corpus.bytes += char(i);
  corpus.split = 7;
  return corpus;
}

// By hand, T = 4: each window scores two bytes, the third one only the last byte.
TEST(L03_Loader, HeldOutWindowsByHand) {
  const Corpus corpus = numbered();
  const Loader loader(corpus, 4, 1);
  EXPECT_EQ(loader.held_out_windows(), 3);
  Windows w(4 * 4);
  EXPECT_EQ(loader.held_out_windows(0, 4, w.inputs.data(), w.targets.data()),
            (std::vector<int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(w.inputs, (std::vector<int32_t>{4, 5, 6, 7, 6, 7, 8, 9, 7, 8, 9, 10, 7, 8, 9, 10}));
  EXPECT_EQ(w.targets, (std::vector<int32_t>{5, 6, 7, 8, 7, 8, 9, 10, 8, 9, 10, 11, 8, 9, 10, 11}));

  const Loader odd(corpus, 5, 1);  // three bytes per window: 7 8 9, 10 11
  EXPECT_EQ(odd.held_out_windows(), 2);
  Windows o(2 * 5);
  EXPECT_EQ(odd.held_out_windows(0, 2, o.inputs.data(), o.targets.data()), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(o.inputs, (std::vector<int32_t>{4, 5, 6, 7, 8, 6, 7, 8, 9, 10}));

  const Loader one(corpus, 1, 1);  // one byte per window, after one byte of context
  EXPECT_EQ(one.held_out_windows(), 5);
  Windows b(5);
  EXPECT_EQ(one.held_out_windows(0, 5, b.inputs.data(), b.targets.data()),
            (std::vector<int64_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(b.inputs, (std::vector<int32_t>{6, 7, 8, 9, 10}));
  EXPECT_EQ(b.targets, (std::vector<int32_t>{7, 8, 9, 10, 11}));
}

TEST(L03_Loader, TheOnlyTrainingWindowIsDrawn) {
  const Corpus corpus = numbered();
  const Windows whole = training(Loader(corpus, 6, 1), 5, 0, 1, 6);
  EXPECT_EQ(whole.inputs, (std::vector<int32_t>{0, 1, 2, 3, 4, 5})) << "6 bytes, and the next byte";
  EXPECT_EQ(whole.targets[5], 6);
}

// Bytes are tokens from 0 to 255, never negative.
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

}  // namespace
}  // namespace gradus
