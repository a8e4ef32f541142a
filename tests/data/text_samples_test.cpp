// Samples of a mapped text: their tokens, the rank that reads each, and that they are the same for any number
// of workers, ranks and restarts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/core/rng.h"
#include "src/data/text_samples.h"
#include "src/tensor/context.h"
#include "tests/data/byte_pairs_testing.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kT = 6;

std::string random_words(int64_t words) {
  Rng rng(4, 1);
  std::string text;
  for (int64_t i = 0; i < words; ++i) {
    for (uint64_t n = 1 + rng.below(6); n > 0; --n) text += char('a' + rng.below(4));
    text += rng.below(9) == 0 ? '\n' : ' ';
  }
  return text;
}

struct L14_TextSamples : FolderTest {
  const std::string text = random_words(300);
  const BytePairs pairs = byte_pairs_of(
      {{"a", "b"}, {"c", "d"}, {" ", "a"}, {"ab", "cd"}, {"d", "a"}, {" a", "a"}, {"b", "b"}, {" ", "c"}});
  TextSamples of(const std::string& bytes, int64_t stride, int64_t used = -1) const {
    write("text", bytes);
    auto file = std::make_shared<const MappedFile>(path("text"));
    return TextSamples(file, used < 0 ? file->bytes() : used, pairs, kT, stride);
  }
  Ids tokens(std::string_view of) const { return BytePairEncoder(pairs).encode(of); }
  struct Sample {
    Ids inputs = Ids(kT, -7), targets = Ids(kT, -7);
  };
  Sample sample(const TextSamples& samples, int64_t i, MergeDropout* dropout = nullptr) const {
    Sample s;
    BytePairEncoder encoder(pairs);
    samples.read(i, encoder, dropout, s.inputs.data(), s.targets.data());
    return s;
  }
};

TEST_F(L14_TextSamples, ASampleBeginsWithTheFirstWordBehindItsByte) {
  const TextSamples samples = of(text, 20);
  EXPECT_EQ(samples.count(), (int64_t(text.size()) - 4 - 1) / 20) << "the longest token has 4 bytes";
  for (int64_t i = 0; i + 5 < samples.count(); ++i) {
    const Ids ids = tokens(text.substr(text.find_first_of(" \n", size_t(20 * i))));
    const Sample s = sample(samples, i);
    EXPECT_EQ(s.inputs, Ids(ids.begin(), ids.begin() + kT)) << i;
    EXPECT_EQ(s.targets, Ids(ids.begin() + 1, ids.begin() + 1 + kT)) << i;
  }
}

TEST_F(L14_TextSamples, WithoutASpaceWithinItsStrideASampleBeginsAtItsByte) {
  const std::string word(100, 'x');
  const TextSamples samples = of(word + " abc abc abc", 10);
  EXPECT_EQ(sample(samples, 3).inputs, Ids(kT, tokens("x")[0]));
}

TEST_F(L14_TextSamples, BehindTheTextTargetsDoNotCount) {
  const TextSamples samples = of("zzz xyz", 2);
  ASSERT_EQ(samples.count(), 1);
  const Sample s = sample(samples, 0);
  const Ids ids = tokens("zzz xyz");
  ASSERT_EQ(ids.size(), 7u);
  EXPECT_EQ(s.inputs, Ids(ids.begin(), ids.begin() + kT));
  const TextSamples shorter = of("ab ab ab ", 3);
  ASSERT_EQ(shorter.count(), 1);
  const Sample t = sample(shorter, 0);
  const Ids two = tokens(" ab ab ");
  ASSERT_EQ(two.size(), 5u);
  EXPECT_EQ(t.inputs, (Ids{two[0], two[1], two[2], two[3], two[4], 0}));
  EXPECT_EQ(t.targets, (Ids{two[1], two[2], two[3], two[4], -1, -1}));
}

// Texts whose last blank is near their end, with strides that end there.
TEST_F(L14_TextSamples, EachSampleHasATarget) {
  for (int64_t n = 1; n < 40; ++n)
    for (int64_t stride = 1; stride < 9; ++stride) {
      const TextSamples samples = of(std::string(size_t(n), 'b') + " abcd"[n % 5] + " ", stride);
      for (int64_t i = 0; i < samples.count(); ++i)
        ASSERT_GE(sample(samples, i).targets[0], 0) << n << " bytes, stride " << stride << ", sample " << i;
    }
}

// A piece without an end, as in a text without blanks: only its beginning is encoded.
TEST_F(L14_TextSamples, OfALongPieceASampleHasTheBeginning) {
  const TextSamples samples = of(std::string(4'000'000, 'b'), 100);
  for (const int64_t i : {int64_t(0), int64_t(7), samples.count() - 1})
    EXPECT_EQ(sample(samples, i).inputs, Ids(kT, tokens("bb")[0])) << i;
}

TEST_F(L14_TextSamples, OfTheHeldOutBytesNothingIsRead) {
  const std::string held_out(400, '!');
  const TextSamples samples = of(text + held_out, 20, int64_t(text.size()));
  EXPECT_EQ(samples.count(), (int64_t(text.size()) - 4 - 1) / 20) << "the longest token has 4 bytes";
  const int32_t never = tokens("!")[0];
  for (int64_t i = 0; i < samples.count(); ++i) {
    const Sample s = sample(samples, i);
    EXPECT_EQ(std::count(s.inputs.begin(), s.inputs.end(), never), 0) << i;
    EXPECT_EQ(std::count(s.targets.begin(), s.targets.end(), never), 0) << i;
  }
}

TEST_F(L14_TextSamples, WithDropoutTheTextIsTheSameInOtherTokens) {
  const TextSamples samples = of(text, 20);
  MergeDropout half{0.5, Rng(1, 1)};
  const Ids with = sample(samples, 3, &half).inputs, without = sample(samples, 3).inputs;
  EXPECT_NE(with, without);
  EXPECT_TRUE(pairs.decode(without).starts_with(pairs.decode(with)));
}

TEST_F(L14_TextSamples, RefusesWhatIsNotThere) {
  const TextSamples samples = of(text, 20);
  for (const int64_t i : {int64_t(-1), samples.count()})
    expect_refused("text samples: sample ", [&] { sample(samples, i); });
  expect_refused("both must be at least 1", [&] { of(text, 0); });
  write("text", text);
  expect_refused("both must be at least 1",
                 [&] { TextSamples(std::make_shared<const MappedFile>(path("text")), 100, pairs, 0, 20); });
  expect_refused("text samples: the first ", [&] { of(text, 20, int64_t(text.size()) + 1); });
}

TEST_F(L14_TextSamples, OfAFileThatWasCutIsASentence) {
  const TextSamples samples = of(random_words(30'000), 20);
  for (const uintmax_t left : {uintmax_t(5000), uintmax_t(1), uintmax_t(0)}) {
    fs::resize_file(path("text"), left);
    expect_refused("became shorter while it was read", [&] { sample(samples, samples.count() - 2); });
  }
}

TEST_F(L14_TextSamples, OfAFileThatGrewOrVanishedAreWhatTheyWere) {
  const TextSamples samples = of(text, 20);
  const Ids before = sample(samples, 2).inputs;
  std::ofstream(path("text"), std::ios::app) << "more and more";
  EXPECT_EQ(sample(samples, 2).inputs, before);
  fs::remove(path("text"));
  EXPECT_EQ(sample(samples, 2).inputs, before);
}

// What a rank's loader returns in `steps` steps.
struct Reading {
  Share share;
  int64_t workers = 0;
  double dropout = 0;
};
struct L14_ReadSamples : L14_TextSamples {
  const TextSamples samples = of(text, 20);
  const SampleOrder order{samples.count(), 5};
  std::vector<Ids> batches(const Reading& r, int64_t steps) const {
    Context context;
    BatchLoader loader(r.share.rows(), kT, r.workers,
                       read_samples(samples, order, r.share, r.workers, r.dropout, 5));
    std::vector<Ids> all;
    for (int64_t s = 0; s < steps; ++s) {
      const TokenBatch& batch = loader.next();
      Ids ids = to_host<int32_t>(batch.inputs);
      for (const int32_t t : to_host<int32_t>(batch.targets)) ids.push_back(t);
      all.push_back(ids);
    }
    return all;
  }
};

TEST_F(L14_ReadSamples, BatchesAreTheSameForAnyNumberOfWorkers) {
  for (const double dropout : {0.0, 0.3}) {
    const std::vector<Ids> alone = batches({{.batch = 4}, 0, dropout}, 40);
    for (const int64_t workers : {1, 2, 3, 4})
      EXPECT_EQ(batches({{.batch = 4}, workers, dropout}, 40), alone)
          << workers << " workers, dropout " << dropout
          << ": a step's samples may depend only on its position, not on the worker that reads them";
  }
}

TEST_F(L14_ReadSamples, EpochsDropOtherMerges) {
  const int64_t n = order.samples();
  const std::vector<Ids> all = batches({{.batch = 1}, 0, 0.3}, 2 * n);
  std::map<int64_t, Ids> first;
  int64_t other = 0;
  for (int64_t p = 0; p < n; ++p) first[order.at(p)] = all[size_t(p)];
  for (int64_t p = n; p < 2 * n; ++p) other += first[order.at(p)] != all[size_t(p)];
  EXPECT_GT(other, n / 2);
}

TEST_F(L14_ReadSamples, AnotherSeedDropsOtherMerges) {
  Context context;
  const auto first = [&](uint64_t seed) {
    BatchLoader loader(8, kT, 1, read_samples(samples, order, {.batch = 8}, 1, 0.3, seed));
    return to_host<int32_t>(loader.next().inputs);
  };
  EXPECT_EQ(first(5), first(5));
  EXPECT_NE(first(5), first(6)) << "the order must differ between seeds";
}

TEST_F(L14_ReadSamples, ARestartAtAnySampleGoesOnWithTheNext) {
  const int64_t n = order.samples() + 10;
  const std::vector<Ids> one_by_one = batches({{.batch = 1}, 2, 0.3}, n);
  for (const int64_t position : {int64_t(0), int64_t(1), int64_t(7), order.samples() - 1, order.samples()}) {
    const std::vector<Ids> rest = batches({{.batch = 1, .position = position}, 3, 0.3}, n - position);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), one_by_one.begin() + position))
        << "after a restart at position " << position << " the samples or their tokens differ";
  }
}

TEST_F(L14_ReadSamples, RanksTogetherReadTheBatchOfOne) {
  const std::vector<Ids> whole = batches({{.batch = 12, .position = 5}, 2, 0.3}, 8);
  for (const int64_t ranks : {2, 3, 4, 12}) {
    const int64_t n = 12 / ranks * kT;  // number of ids in a rank's inputs
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const std::vector<Ids> part =
          batches({{.batch = 12, .rank = rank, .ranks = ranks, .position = 5}, 2, 0.3}, 8);
      for (size_t step = 0; step < part.size(); ++step) {
        const Ids& all = whole[step];
        Ids expected(all.begin() + rank * n, all.begin() + (rank + 1) * n);
        expected.insert(expected.end(), all.begin() + 12 * kT + rank * n,
                        all.begin() + 12 * kT + (rank + 1) * n);
        ASSERT_EQ(part[step], expected) << "rank " << rank << " of " << ranks << ", step " << step;
      }
    }
  }
}

TEST_F(L14_ReadSamples, AWorkersErrorEndsTheLoopWithItsSentence) {
  const TextSamples large = of(random_words(30'000), 20);
  const SampleOrder its_order(large.count(), 5);
  Context context;
  BatchLoader loader(4, kT, 2, read_samples(large, its_order, {.batch = 4}, 2, 0, 5));
  loader.next();
  fs::resize_file(path("text"), 0);
  expect_refused("became shorter while it was read", [&] {
    for (int i = 0; i < 10; ++i) loader.next();
  });
}

TEST_F(L14_ReadSamples, RefusesSharesThatCannotBe) {
  const auto read = [&](const Share& share) { read_samples(samples, order, share, 1, 0, 5); };
  expect_refused("it must be a multiple of their number", [&] { read({.batch = 8, .ranks = 3}); });
  expect_refused("it must be a multiple of their number", [&] { read({.batch = 0}); });
  for (const Share& wrong : {Share{.batch = 4, .rank = 2, .ranks = 2},
                             Share{.batch = 4, .rank = -1, .ranks = 2}, Share{.batch = 4, .position = -1}})
    expect_refused("ranks and positions count from 0", [&] { read(wrong); });
  for (const double wrong : {-0.1, 1.1, double(NAN)})
    expect_refused("merges cannot be dropped with probability ",
                   [&] { read_samples(samples, order, {.batch = 4}, 1, wrong, 5); });
  Context context;
  BatchLoader loader(4, kT, 3, read_samples(samples, order, {.batch = 4}, 2, 0, 5));
  expect_refused("there are encoders for 2 workers, and this is worker 2", [&] {
    for (int i = 0; i < 3; ++i) loader.next();
  });
  expect_refused("an order of 7 samples for ",
                 [&] { read_samples(samples, SampleOrder(7, 1), {.batch = 4}, 1, 0, 5); });
}

TEST(L14_Share, IsTheRanksPartOfEachStep) {
  RecordProperty("exercise", "14.1");
  const auto first = [](int64_t rank, int64_t ranks, int64_t position, int64_t step) {
    return Share{.batch = 12, .rank = rank, .ranks = ranks, .position = position}.first_of(step);
  };
  EXPECT_EQ(first(0, 1, 0, 0), 0);  // rank 0 of 1, position 0, step 0; the batch is 12
  EXPECT_EQ(first(0, 1, 0, 3), 36) << "a step reads a whole batch, so the next begins a batch later";
  EXPECT_EQ(first(1, 2, 0, 0), 6) << "rank 1 begins after the samples of rank 0";
  EXPECT_EQ(first(3, 4, 0, 2), 33)
      << "two whole batches were read, by all ranks together; then ranks 0 to 2 read 3 each";
  EXPECT_EQ(first(0, 1, 7, 0), 7) << "after a restart step 0 begins at the position";
  EXPECT_EQ(first(2, 3, 100, 5), 168);
  std::vector<int64_t> times(12 * 5);
  for (int64_t step = 0; step < 5; ++step)
    for (int64_t rank = 0; rank < 3; ++rank)
      for (int64_t row = 0; row < 4; ++row) {
        const int64_t p = first(rank, 3, 0, step) + row;
        ASSERT_TRUE(p >= 0 && p < 60) << "rank " << rank << " reads position " << p << " in step " << step;
        ++times[size_t(p)];
      }
  EXPECT_EQ(std::count(times.begin(), times.end(), 1), 60) << "each sample must be read once, by one rank";
}

}  // namespace
}  // namespace gradus
