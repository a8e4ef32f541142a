// Lesson 14: the text, the division of its samples, waiting times, bits per byte, the checks, the program.
#include "lessons/14_data_loading/bits.h"
#include "lessons/14_data_loading/by_hand.h"
#include "lessons/14_data_loading/learned.h"
#include "lessons/14_data_loading/waiting.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/train/text.h"
#include "tests/folder_testing.h"
#include "tests/lessons/report_testing.h"
#include "tests/program_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L14_Text : FolderTest {};

TEST_F(L14_Text, HasOneSamplePerTTimesBytesPerToken) {
  const LessonText text = map_text("", path("made.txt"), 20'000, 1);
  const BytePairs pairs = byte_pairs_for(text, "256");
  EXPECT_EQ(samples_of(text, pairs, 10, 3.5).count(), (text.split - 2) / 35);
  expect_refused("this lesson needs at least 8", [&] { samples_of(text, pairs, 10, 250); });
}

TEST_F(L14_Text, OfTheGrammarIsWrittenAndMapped) {
  const LessonText text = map_text("", path("made.txt"), 5000, 1);
  EXPECT_GE(text.file->bytes(), 5000);
  EXPECT_EQ(std::string(text.train()) + std::string(text.held_out()), read("made.txt"));
  EXPECT_NEAR(double(text.held_out().size()), 0.1 * double(text.file->bytes()), 100);
  EXPECT_DOUBLE_EQ(text.floor.value(), *generated_text("steps.grammar", 5000, 1).floor / std::numbers::ln2);
}

TEST_F(L14_Text, HoldsOutTheLastTenthOfAFile) {
  write("own.txt", std::string(9000, 'a') + std::string(1000, 'b'));
  const LessonText text = map_text(path("own.txt"), path("made.txt"), 5000, 1);
  EXPECT_EQ(text.train(), std::string(9000, 'a'));
  EXPECT_EQ(text.held_out(), std::string(1000, 'b'));
  EXPECT_FALSE(text.floor);
  EXPECT_FALSE(fs::exists(path("made.txt")));
}

TEST_F(L14_Text, RejectsFilesThatAreTooShortOrTooLong) {
  write("short.txt", std::string(9999, 'a'));
  expect_refused("this lesson needs 10000 to", [&] { map_text(path("short.txt"), "", 0, 1); });
  write("long.txt", "a");
  fs::resize_file(path("long.txt"), (uintmax_t(64) << 20) + 1);
  expect_refused("this lesson needs 10000 to", [&] { map_text(path("long.txt"), "", 0, 1); });
  expect_refused("cannot be opened", [&] { map_text(path("nowhere.txt"), "", 0, 1); });
}

// 96 samples in 12 steps of 8, so the expected counts can be counted by hand.
ReadCounts counts(Sharing how, int64_t ranks, int64_t workers) {
  return count_reads(how, SampleOrder(96, 3), 8, ranks, workers);
}

TEST(L14_Sharing, DividedAmongRanksAndWorkersEachSampleIsReadOnce) {
  for (const int64_t ranks : {1, 2, 4})
    for (const int64_t workers : {1, 2, 3, 4}) {
      const ReadCounts c = counts(Sharing::Shared, ranks, workers);
      EXPECT_EQ(c.read, 96);
      EXPECT_EQ(c.different, 96) << ranks << " ranks, " << workers << " workers";
      EXPECT_EQ(c.repeated, 0);
      EXPECT_EQ(c.never, 0);
    }
}

void expect_a_quarter_read_four_times(const ReadCounts& c) {
  EXPECT_EQ(c.read, 96);
  EXPECT_EQ(c.different, 24);
  EXPECT_EQ(c.repeated, 24);
  EXPECT_EQ(c.never, 72);
}

TEST(L14_Sharing, WithoutDivisionEachOfFourWorkersReadsTheSameQuarter) {
  expect_a_quarter_read_four_times(counts(Sharing::EveryWorkerReadsAll, 2, 4));
  EXPECT_EQ(counts(Sharing::EveryWorkerReadsAll, 2, 1).different, 96)
      << "a single worker reads each sample once";
}

TEST(L14_Sharing, WithoutDivisionEachOfFourRanksReadsTheSameQuarter) {
  expect_a_quarter_read_four_times(counts(Sharing::EveryRankReadsAll, 4, 2));
}

TEST(L14_Waiting, IsPredictedFromTheTimesOfABatchAndAStep) {
  RecordProperty("exercise", "14.2");
  EXPECT_DOUBLE_EQ(predicted_waiting(6, 2, 0), 6)
      << "without workers the loop makes the batch itself and waits for all of it";
  EXPECT_DOUBLE_EQ(predicted_waiting(6, 2, 1), 4)
      << "one worker makes the batch while the step computes, so the step waits for the difference";
  EXPECT_DOUBLE_EQ(predicted_waiting(6, 2, 2), 1) << "two workers finish two batches in the time of one";
  EXPECT_DOUBLE_EQ(predicted_waiting(6, 2, 3), 0);
  EXPECT_DOUBLE_EQ(predicted_waiting(6, 2, 4), 0) << "a waiting time cannot be negative";
  EXPECT_DOUBLE_EQ(predicted_waiting(1, 2, 0), 1);
  EXPECT_DOUBLE_EQ(predicted_waiting(1, 2, 1), 0);
}

TEST(L14_Waiting, MeasuresAllPlacesAlternating) {
  std::vector<std::string> asked;
  double latency = 0;
  const int all = omp_get_max_threads();
  const std::vector<Waiting> runs = measure_waiting(
      [&](const Place& place, int64_t workers, int64_t restart_after) {
        EXPECT_EQ(restart_after, kNoRestart);
        if (place.latency > 0) latency = place.latency;
        EXPECT_EQ(omp_get_max_threads(), place.core_left ? std::max(1, all - 1) : all) << place.name;
        asked.push_back(place.name.substr(0, 7) + std::to_string(workers));
        const double w = double(workers);
        return LoadedRun{{1, 2, 3, 4}, {90, 80, 2, 4}, {9, 8, w, w + 2}};
      },
      3);
  ASSERT_EQ(runs.size(), 12u);
  ASSERT_EQ(asked.size(), 1u + 3 * 12);
  EXPECT_TRUE(std::equal(asked.begin() + 1, asked.begin() + 13, asked.begin() + 13));
  EXPECT_EQ(omp_get_max_threads(), all);
  EXPECT_DOUBLE_EQ(latency, 3 * 80) << "the latency is three times the median step, which is 80";
  for (const Waiting& w : runs) {
    EXPECT_DOUBLE_EQ(w.step, 3) << "the mean without the two warm-up steps";
    EXPECT_DOUBLE_EQ(w.waited, double(w.workers) + 1);
    EXPECT_EQ(w.last.losses, (std::vector<double>{1, 2, 3, 4}));
  }
}

TEST(L14_Waiting, AStoresBatchComesAfterItsLatency) {
  int filled = 0;
  const auto fill =
      from_place([&](int64_t, int64_t, int32_t*, int32_t*) { ++filled; }, {"store", 20e-3, true});
  const double begin = seconds_now();
  fill(0, 0, nullptr, nullptr);
  EXPECT_GE(seconds_now() - begin, 20e-3);
  EXPECT_EQ(filled, 1);
}

TEST(L14_Waiting, DifferentLossesAreCounted) {
  EXPECT_EQ(different_losses({1, 2, 3}, {1, 2, 3}), 0);
  EXPECT_EQ(different_losses({1, 2, 3}, {1, 5, 4}), 2);
  EXPECT_EQ(different_losses({NAN, 1}, {NAN, 1}), 0) << "without data all losses are NaN";
  EXPECT_EQ(different_losses({NAN, 1}, {2, 1}), 1);
  EXPECT_EQ(different_losses({2, 1}, {NAN, 1}), 1);
  EXPECT_EQ(different_losses({1, 2}, {1, 2, 3}), 1);
  EXPECT_EQ(different_losses({1, 2, 3}, {1}), 2);
}

TEST(L14_Bits, ArePerByteAndNotPerToken) {
  EXPECT_DOUBLE_EQ(bits_per_byte(std::numbers::ln2, 1), 1);
  EXPECT_DOUBLE_EQ(bits_per_byte(std::numbers::ln2, 4), 0.25)
      << "the bits of a token are divided by its four bytes";
  EXPECT_DOUBLE_EQ(bits_per_byte(std::log(256.0), 1), 8) << "a uniform distribution over bytes needs 8 bits";
}

struct L14_Models : FolderTest {
  const LessonText text = map_text("", path("made.txt"), 20'000, 1);
  const BytePairs pairs = byte_pairs_for(text, "300");
  const std::vector<TextModel> models = text_models(text, pairs, 100);
};

TEST_F(L14_Models, HaveTheSameTextInTheirTokens) {
  ASSERT_EQ(models.size(), 3u);
  for (const TextModel& m : models) {
    std::vector<int32_t> ids(size_t(m.tokens.size()));
    m.tokens.copy(0, m.tokens.size(), ids.data());
    const bool bytes = m.tokens.vocabulary() == 256;
    const auto decode = [&](auto begin, auto end) {
      const std::vector<int32_t> part(begin, end);
      if (!bytes) return pairs.decode(part);
      return std::string(part.begin(), part.end());
    };
    const auto split = ids.begin() + m.tokens.split();
    EXPECT_EQ(decode(ids.begin(), split), text.train()) << m.name;
    EXPECT_EQ(decode(split, ids.end()), text.held_out()) << m.name;
    EXPECT_DOUBLE_EQ(m.bytes_per_token, double(text.held_out().size()) / double(m.tokens.held_out()))
        << m.name;
  }
  EXPECT_EQ(models[2].tokens.vocabulary(), 300);
  EXPECT_EQ(models[0].steps, 100);
  EXPECT_EQ(models[2].steps, 100);
  EXPECT_NEAR(double(models[1].steps), 100 * models[2].bytes_per_token, 0.5)
      << "the second model reads as many bytes as the third";
}

TEST_F(L14_Models, ChecksTheirBits) {
  struct Losses {
    double bytes = 1, long_bytes = 0.9, tokens = 1;
  };
  const Checked failed(Losses{}, [&](const Losses& l, Report& report) {
    std::vector<ReportRow> rows(3);
    rows[0].loss_held_out = l.bytes, rows[1].loss_held_out = l.long_bytes, rows[2].loss_held_out = l.tokens;
    report_bits(models, rows, 0.5, "", report);
  });
  const Names below{"bits per byte: best model / entropy of the grammar"},
      worse{"bits per byte: tokens / bytes, same amount of text"};
  EXPECT_EQ(failed([&](Losses& l) { l.tokens = 0.5 * 0.98 * std::numbers::ln2 * models[2].bytes_per_token; }),
            below);
  EXPECT_EQ(failed([&](Losses& l) { l.tokens = 1.01 * 0.9 * models[2].bytes_per_token; }), worse);
  EXPECT_EQ(failed([](Losses& l) { l.tokens = 1.3; }), Names{})
      << "more nats per token, but fewer bits per byte";
}

TEST_F(L14_Models, HaveTheRequestedVocabulary) {
  EXPECT_EQ(pairs.vocabulary(), 300);
  EXPECT_EQ(byte_pairs_for(text, "256").vocabulary(), 256);
}

// With the held-out text different byte pairs would be learned.
TEST_F(L14_Models, AreLearnedFromTheTrainingText) {
  std::string own(9000, 'a');
  for (int i = 0; i < 500; ++i) own += "xy";
  write("own.txt", own);
  const LessonText text = map_text(path("own.txt"), "", 0, 1);
  EXPECT_EQ(byte_pairs_for(text, "300").merges(), BytePairs::learn(text.train(), 44).merges());
  EXPECT_NE(BytePairs::learn(own, 44).merges(), BytePairs::learn(text.train(), 44).merges());
}

TEST_F(L14_Models, AreSavedInTheFormatOfTransformersAndLoaded) {
  save_byte_pairs(pairs, path("saved"));
  for (const char* file : {"saved/merges.txt", "saved/vocab.json", "saved/tokenizer.json"})
    EXPECT_TRUE(fs::exists(path(file))) << file;
  EXPECT_EQ(byte_pairs_for(text, path("saved")).tokens(), pairs.tokens());
  EXPECT_EQ(byte_pairs_for(text, path("saved")).merges(), pairs.merges());
}

TEST(L14_ByHand, TheTextIsShownInItsTokens) {
  const BytePairs pairs = BytePairs::learn("ab ab ab", 2);
  EXPECT_EQ(in_tokens("ab ab\n", pairs), "ab| ab|\n");
  EXPECT_EQ(in_tokens("", pairs), "");
}

struct L14_Program : FolderTest {
  const std::string there = "cd '" + path() + "';";
};
const char* const kLesson = "lessons/14_data_loading";

TEST_F(L14_Program, TrainsOnAGivenFileAndSavesItsBytePairs) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "sample " + std::to_string(i * i) + " has words\n";
  write("mine.txt", text);
  const Outcome outcome =
      run(kLesson, "--device=meta --steps=2 --data=mine.txt --tokens=280 --save=own", there);
  if (outcome.output.find(" is open: ") != std::string::npos) return;
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("280 tokens"), std::string::npos) << outcome.output;
  EXPECT_EQ(load_byte_pairs(path("own")).vocabulary(), 280);
}

TEST_F(L14_Program, RejectsFlagsAndFilesThatItCannotUse) {
  for (const char* tokens : {"255", "-1", "2000000", "99999999999999999999"})
    expect_refused(run(kLesson, std::string("--tokens=") + tokens, there), 2, "a vocabulary has 256 to");
  for (const char* tokens : {"512x", "nowhere", "5.5"})
    expect_refused(run(kLesson, std::string("--tokens=") + tokens, there), 1, "merges.txt");
  expect_refused(run(kLesson, "--data=nowhere.txt", there), 1, "nowhere.txt");
  write("small.txt", "a few words");
  expect_refused(run(kLesson, "--data=small.txt", there), 1, "this lesson needs 10000 to");
  write("one.txt", std::string(10000, 'a'));
  expect_refused(run(kLesson, "--data=one.txt", there), 1, "this lesson needs at least 8");
  write("file", "");
  expect_refused(run(kLesson, "--device=meta --steps=1 --save=file", there), 1, "file");
}

}  // namespace
}  // namespace gradus
