// Lesson 22: the exercises, and what the scoreboard's tables are made of.
#include <set>
#include <sstream>

#include "lessons/22_scoreboard/best.h"
#include "lessons/22_scoreboard/methods.h"
#include "lessons/22_scoreboard/my_combination.h"
#include "lessons/22_scoreboard/plan.h"
#include "lessons/22_scoreboard/published.h"
#include "src/core/table.h"
#include "tests/folder_testing.h"
#include "tests/lessons/report_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

const char* const kTiny = "--model=gpt-2x16x2 --context=16 --batch=8 --text-bytes=20000";

TEST(L22_Exercises, TokensPerSecondAreComparedByMedians) {
  RecordProperty("exercise", "22.1");
  EXPECT_DOUBLE_EQ(relative_speed({2, 2, 2}, 100, {1, 1, 1}, 100), 0.5)
      << "steps of twice the time: half as many tokens per second";
  EXPECT_DOUBLE_EQ(relative_speed({4, 4}, 400, {1, 1}, 100), 1)
      << "a step of 4 times the tokens in 4 times the time is as fast";
  EXPECT_DOUBLE_EQ(relative_speed({1, 9, 1, 1, 1}, 100, {2, 2, 40, 2, 2}, 100), 2)
      << "one step that the machine disturbed must not count: take medians, not means";
  EXPECT_NEAR(relative_speed({1, 3, 3}, 100, {1, 1, 1}, 100), 1.0 / 3, 1e-12)
      << "the fastest step is not the usual one: take medians";
  EXPECT_DOUBLE_EQ(relative_speed({1, 2, 3}, 100, {3, 1, 2}, 100), 1)
      << "the median of each run, not of the quotients of its steps";
  EXPECT_DOUBLE_EQ(relative_speed({2, 2, 2, 2}, 100, {1, 1}, 100), 0.5)
      << "the numbers of timed steps may differ";
}

TEST(L22_Exercises, TheFrontHasTheRunsThatNoOtherBeats) {
  RecordProperty("exercise", "22.2");
  using Runs = std::vector<TimeAndMemory>;
  const auto front = [](const Runs& runs) { return front_of(runs); };
  using Indices = std::vector<size_t>;
  EXPECT_EQ(front({{1.0, 1.0}, {1.4, 0.7}, {1.2, 0.8}, {1.3, 0.6}}), (Indices{0, 2, 3}))
      << "run 1 needs more time and more memory than run 3; the others are listed by time";
  EXPECT_EQ(front({{1, 1}, {2, 3}, {3, 2}}), (Indices{0}))
      << "run 2 needs less memory than run 1, but more of both than run 0";
  EXPECT_EQ(front({{3, 1}, {2, 2}, {1, 3}}), (Indices{2, 1, 0})) << "the fastest comes first";
  EXPECT_EQ(front({{1, 2}, {1, 1}}), (Indices{1})) << "of two equally fast runs the one with less memory";
  EXPECT_EQ(front({{1, 2}, {2, 2}}), (Indices{0})) << "of two runs with equal memory the faster one";
  EXPECT_EQ(front({{1, 1}, {1, 1}}), (Indices{0})) << "of equal runs the first";
  EXPECT_EQ(front({{5, 5}}), (Indices{0}));
  EXPECT_TRUE(front({}).empty());
}

TEST(L22_Exercises, TheSearchFindsWhatBruteForceFinds) {
  RecordProperty("exercise", "22.3");
  // Wide enough for budgets to differ, and on a machine that is often bound by its memory.
  const Scoreboard board("--model=gpt-2x256x4 --context=32 --batch=16 --text-bytes=20000", 1);
  const Machine machine = machine_called("H100");
  BestCombination all(board, machine), search(board, machine);
  const int64_t most = all.needs(*all.by_brute_force(INT64_MAX)).reserved, least = all.least_bytes();
  EXPECT_FALSE(search.within(least / 2)) << "nothing fits, so there is no combination";
  constexpr int kBudgets = 60;
  for (int i = kBudgets; i >= 0; --i) {
    const int64_t budget = least + (most - least) * i / kBudgets;
    const auto found = search.within(budget), best = all.by_brute_force(budget);
    ASSERT_TRUE(found.has_value()) << "budget " << budget << ": a combination fits";
    EXPECT_LE(search.needs(*found).allocated, budget) << found->text() << " needs more than the budget";
    EXPECT_LE(search.needs(*found).seconds, all.needs(*best).seconds)
        << "budget " << budget << ": " << found->text() << " is slower than " << best->text();
  }
  BestCombination one(board, machine);
  one.within(most);
  EXPECT_LE(one.measured(), 90)
      << "if the first fits, no combination that is slower with one micro-batch has to be measured with more";
}

// The data of a step is a function of its number alone.
TEST(L22_Exercises, AResumedRunReadsTheNextBatches) {
  RecordProperty("exercise", "22.5");
  const Scoreboard board(kTiny, 1);
  const TrainSettings s = board.settings("");
  const Context context;
  const std::string file = testing::TempDir() + "22_resumed.safetensors";
  std::vector<double> losses, resumed;
  Training unbroken(s, board.text()), begun(s, board.text());
  for (int i = 0; i < 6; ++i) losses.push_back(unbroken.step());
  for (int i = 0; i < 3; ++i) resumed.push_back(begun.step());
  begun.save(file);
  const Context other;
  Training goes_on(s, board.text());
  goes_on.load(file);
  while (goes_on.steps() < 6) resumed.push_back(goes_on.step());
  std::filesystem::remove(file);
  EXPECT_TRUE(losses == resumed)
      << "after step 3 the resumed run has other losses than the unbroken one: its last is " << resumed.back()
      << ", not " << losses.back();
}

TEST(L22_Exercises, ACombinationForABudget) {
  RecordProperty("exercise", "22.6");
  const std::string flags = my_combination();
  std::istringstream words(flags);
  for (std::string word; words >> word;)
    EXPECT_TRUE(std::set<std::string>({"--attention", "--keep", "--loss-rows", "--micro-batches"})
                    .contains(word.substr(0, word.find('='))))
        << word << " changes more than how the step is computed";
  const Scoreboard board("--model=gpt2 --vocab=0 --context=0 --text-bytes=20000", 1);
  const Machine a100 = machine_called("A100");
  const PlannedStep mine = plan_step(board.settings(flags), board.text(), a100);
  EXPECT_LE(mine.reserved, kByHandBudget) << flags << " needs " << bytes_text(mine.reserved);
  // The model's FLOPs, and the blocks' forward pass once more, are what it takes at least.
  const PlannedStep plain = plan_step(board.settings(""), board.text(), a100);
  EXPECT_LE(mine.seconds, 1.2 * plain.seconds)
      << flags << ": some flag costs time that this budget does not ask for";
}

TEST(L22_Scoreboard, MethodsAreFlagsOfTheTrainer) {
  const Scoreboard board(kTiny, 1);
  for (const auto& methods : {published_methods(8), course_methods(8)})
    for (const Method& m : methods) {
      EXPECT_NO_THROW(board.settings(m.flags)) << m.name;
      EXPECT_NO_THROW(board.settings(m.base)) << m.name;
    }
  EXPECT_EQ(board.settings("--batch=4").batch, 4) << "a method's flags come before the common ones";
  EXPECT_EQ(board.settings("").batch, 8);
  EXPECT_EQ(board.settings("--ranks=4 --tensor-ranks=2").layout.data, 2);
  expect_refused("no-such", [&] { board.settings("--no-such=1"); });
}

TEST(L22_Scoreboard, AVerdictSaysWhatDiffers) {
  const auto verdict_of = [](Claim faster, Claim less_memory, double speed, double memory) {
    return verdict({"m", "", faster, less_memory, true, "", "because"},
                   {.seconds = 1, .speed = speed, .memory = memory});
  };
  EXPECT_EQ(verdict_of(Claim::Yes, Claim::No, 1.5, 1), "agrees");
  EXPECT_EQ(verdict_of(Claim::No, Claim::Yes, 0.5, 0.5), "agrees");
  EXPECT_EQ(verdict_of(Claim::Yes, Claim::Maybe, 1.02, 2), "not faster: because") << "2 % are noise";
  EXPECT_EQ(verdict_of(Claim::No, Claim::Yes, 1.5, 1), "faster, not less memory: because");
  EXPECT_EQ(verdict_of(Claim::No, Claim::No, 1, 0.5), "less memory: because");
  EXPECT_EQ(verdict_of(Claim::Yes, Claim::Yes, NAN, 0.5), "agrees") << "on meta no time is known";
}

// A method that changes nothing is compared with its twin: on meta to the byte.
TEST(L22_Scoreboard, ARunNeedsAsMuchAsItsTwin) {
  const Scoreboard board(kTiny, 2);
  for (const char* device : {"meta", "cpu"}) {
    const Context context(device);
    for (const char* flags : {"", "--ranks=2", "--ranks=2 --tensor-ranks=2"}) {
      const Measured twin = board.compare(flags, flags);
      EXPECT_EQ(twin.memory, 1) << device << " " << flags;
      EXPECT_GT(twin.peak(), 0);
      EXPECT_EQ(std::isnan(twin.speed), std::string(device) == "meta") << flags;
    }
    EXPECT_LT(board.compare("--micro-batches=8", "").memory, 0.8) << device;
    EXPECT_GT(board.compare("", "--micro-batches=8").memory, 1.25) << device;
  }
}

// What a combination needs on meta is what its run needs.
TEST(L22_Scoreboard, PlannedBytesAreTheRuns) {
  const Scoreboard board(kTiny, 1);
  for (const char* flags :
       {"", "--keep=each-block --micro-batches=4", "--precision=mixed --optimizer=adamw8bit",
        "--attention=flash --loss-rows=16", "--lora=2 --frozen=4-bits"}) {
    const TrainSettings s = board.settings(flags);
    const PlannedStep planned = plan_step(s, board.text(), machine_called("A100"));
    Context context;
    Training training(s, board.text());
    training.step(), training.step();
    EXPECT_EQ(context.device.meter().peak_reserved(), planned.reserved) << flags;
    EXPECT_EQ(context.device.meter().at_peak().allocated(), planned.peak.allocated()) << flags;
  }
}

TEST(L22_Scoreboard, APolicyIsChosenForABudget) {
  const Scoreboard board("--model=gpt-4x64x4 --context=64 --batch=16 --text-bytes=20000", 1);
  const auto planned = [&](const std::string& keep, int64_t budget) {
    return plan_step(board.settings("--keep=" + keep), board.text(), machine_called("A100"), budget);
  };
  const auto chosen = [&](int64_t budget) {
    TrainSettings s = board.settings("--keep=auto");
    choose_policy(s, board.text(), budget);
    EXPECT_NE(s.used.find("\"keep\":\"" + s.keep + "\""), std::string::npos) << s.used;
    return s.keep;
  };
  EXPECT_EQ(chosen(int64_t(1) << 40), "store-all") << "nothing is recomputed without need";
  const PlannedStep all = planned("store-all", 0), each = planned("each-block", 0);
  ASSERT_LT(each.reserved, all.peak.allocated());
  EXPECT_LE(planned(chosen(each.reserved), each.reserved).seconds, each.seconds);
  EXPECT_NE(chosen(all.peak.allocated() - 1), "store-all");
  expect_refused("no policy fits", [&] { chosen(1 << 20); });
  expect_refused("for which budget", [&] { chosen(0); });
}

TEST(L22_Scoreboard, TheirPublishedRunsAreRepeated) {
  const Context meta("meta");
  EXPECT_TRUE(failed_checks([](Report& report) { scoreboard_published(report); }).empty());
}

}  // namespace
}  // namespace gradus
