// Windows of small texts, worked out by hand.
#include <gtest/gtest.h>

#include <set>

#include "tests/data/loader_testing.h"

namespace gradus {
namespace {

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

}  // namespace
}  // namespace gradus
