// Lesson 22: the exercises, and the functions behind the tables of the scoreboard.
#include <set>
#include <sstream>

#include "lessons/22_scoreboard/best.h"
#include "lessons/22_scoreboard/curves.h"
#include "lessons/22_scoreboard/methods.h"
#include "lessons/22_scoreboard/my_combination.h"
#include "lessons/22_scoreboard/plan.h"
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
      << "steps take twice the time, so there are half as many tokens per second";
  EXPECT_DOUBLE_EQ(relative_speed({4, 4}, 400, {1, 1}, 100), 1)
      << "4 times the tokens in 4 times the time: both runs have the same tokens per second";
  EXPECT_DOUBLE_EQ(relative_speed({1, 9, 1, 1, 1}, 100, {2, 2, 40, 2, 2}, 100), 2)
      << "a step that was disturbed by another program must not count: use medians, not means";
  EXPECT_NEAR(relative_speed({1, 3, 3}, 100, {1, 1, 1}, 100), 1.0 / 3, 1e-12)
      << "the fastest step is not a typical one: use medians";
  EXPECT_DOUBLE_EQ(relative_speed({1, 2, 3}, 100, {3, 1, 2}, 100), 1)
      << "take the median of each run, not the median of the quotients of steps";
  EXPECT_DOUBLE_EQ(relative_speed({2, 2, 2, 2}, 100, {1, 1}, 100), 0.5)
      << "the two runs may have different numbers of timed steps";
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
  EXPECT_EQ(front({{1, 2}, {1, 1}}), (Indices{1}))
      << "of two equally fast runs, the one with less memory is on the front";
  EXPECT_EQ(front({{1, 2}, {2, 2}}), (Indices{0}))
      << "of two runs with equal memory, the faster one is on the front";
  EXPECT_EQ(front({{1, 1}, {1, 1}}), (Indices{0})) << "of equal runs, only the first is on the front";
  EXPECT_EQ(front({{5, 5}}), (Indices{0}));
  EXPECT_TRUE(front({}).empty());
}

TEST(L22_Exercises, TheSearchFindsWhatBruteForceFinds) {
  RecordProperty("exercise", "22.3");
  // The model is wide enough that budgets differ, and most kernels are memory-bound on this machine.
  const Scoreboard board("--model=gpt-2x256x4 --context=32 --batch=16 --text-bytes=20000", 1);
  const Machine machine = machine_called("H100");
  BestCombination all(board, machine), search(board, machine);
  const int64_t most = all.needs(*all.by_brute_force(INT64_MAX)).reserved, least = all.least_bytes();
  EXPECT_FALSE(search.within(least / 2)) << "nothing fits, so there is no combination";
  constexpr int kBudgets = 60;
  for (int i = kBudgets; i >= 0; --i) {
    const int64_t budget = least + (most - least) * i / kBudgets;
    const auto found = search.within(budget), best = all.by_brute_force(budget);
    ASSERT_TRUE(found.has_value()) << "budget " << budget
                                   << ": a combination fits, but the search found none";
    EXPECT_LE(search.needs(*found).allocated, budget) << found->text() << " needs more than the budget";
    EXPECT_LE(search.needs(*found).seconds, all.needs(*best).seconds)
        << "budget " << budget << ": " << found->text() << " is slower than " << best->text();
  }
  BestCombination one(board, machine);
  one.within(most);
  EXPECT_LE(one.measured(), 90) << "the search must stop: once a combination fits, none that is slower with "
                                   "one micro-batch can be better";
}

// The batch of a step depends only on the number of the step.
TEST(L22_Exercises, AResumedRunReadsTheNextBatches) {
  RecordProperty("exercise", "22.5");
  const Scoreboard board(kTiny, 1);
  const TrainSettings s = board.settings("");
  const Context context;
  const std::string file = testing::TempDir() + "22_resumed.safetensors";
  std::vector<double> losses, resumed;
  Training uninterrupted(s, board.text()), begun(s, board.text());
  for (int i = 0; i < 6; ++i) losses.push_back(uninterrupted.step());
  for (int i = 0; i < 3; ++i) resumed.push_back(begun.step());
  begun.save(file);
  const Context other;
  Training goes_on(s, board.text());
  goes_on.load(file);
  while (goes_on.steps() < 6) resumed.push_back(goes_on.step());
  std::filesystem::remove(file);
  EXPECT_TRUE(losses == resumed)
      << "the losses of the resumed run differ from those of the uninterrupted run: the last one is "
      << resumed.back() << ", not " << losses.back();
}

TEST(L22_Exercises, ACombinationForABudget) {
  RecordProperty("exercise", "22.6");
  const std::string flags = my_combination();
  std::istringstream words(flags);
  for (std::string word; words >> word;)
    EXPECT_TRUE(std::set<std::string>({"--attention", "--keep", "--loss-rows", "--micro-batches"})
                    .contains(word.substr(0, word.find('='))))
        << word << " is not one of the allowed flags: --attention, --keep, --loss-rows, --micro-batches";
  const Scoreboard board("--model=gpt2 --vocab=0 --context=0 --text-bytes=20000", 1);
  const Machine a100 = machine_called("A100");
  const PlannedStep mine = plan_step(board.settings(flags), board.text(), a100);
  EXPECT_LE(mine.reserved, kByHandBudget)
      << flags << " needs " << bytes_text(mine.reserved) << ", which is more than the budget";
  // The bound allows the FLOPs of the plain run and one more forward pass of the blocks.
  const PlannedStep plain = plan_step(board.settings(""), board.text(), a100);
  EXPECT_LE(mine.seconds, 1.2 * plain.seconds)
      << flags << ": a flag costs more time than this budget requires";
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

TEST(L22_Scoreboard, TheVerdictNamesTheDifference) {
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

// Two runs with the same flags have the same peak, so the relative peak is 1.
TEST(L22_Scoreboard, EqualRunsHaveEqualPeaks) {
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

// The predicted bytes of a run, from meta, are exactly its measured bytes.
TEST(L22_Scoreboard, PredictedBytesEqualMeasuredBytes) {
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
  EXPECT_EQ(chosen(int64_t(1) << 40), "store-all") << "the budget is large, so nothing must be recomputed";
  const PlannedStep all = planned("store-all", 0), each = planned("each-block", 0);
  ASSERT_LT(each.reserved, all.peak.allocated());
  EXPECT_LE(planned(chosen(each.reserved), each.reserved).seconds, each.seconds);
  EXPECT_NE(chosen(all.peak.allocated() - 1), "store-all");
  expect_refused("no policy fits", [&] { chosen(1 << 20); });
  expect_refused("needs a budget", [&] { chosen(0); });
}

TEST(L22_Checks, OfMethods) {
  const Context meta("meta");
  const Scoreboard board(kTiny, 1);
  const auto failed = [&](bool saves) {
    const std::vector<Method> methods{
        {"4 micro-batches", "--micro-batches=4", Claim::None, Claim::None, true},
        {"twin", "", Claim::None, Claim::None, saves}};
    return failed_checks([&](Report& report) { run_methods("(b) methods", methods, board, report); });
  };
  EXPECT_EQ(failed(false), Names{});
  EXPECT_EQ(failed(true),
            Names{"(b) methods whose memory saving (yes or no) differs from the lesson's prediction: twin"});
}

TEST(L22_Checks, OfBudgetsAndPublishedFigures) {
  const auto budgets = [](int64_t over, double slower) {
    return failed_checks([&](Report& report) { check_budgets(over, slower, report); });
  };
  const auto reserved = [](int64_t bytes) {
    return failed_checks([&](Report& report) { check_reserved(bytes, 1000, report); });
  };
  const auto reproduced = [](double mib) {
    return failed_checks([&](Report& report) { check_reproduced(mib, report); });
  };
  EXPECT_EQ(budgets(0, 0.03), Names{});
  EXPECT_EQ(budgets(1, 0), Names{"(d) budgets exceeded by the combination found, of 20"});
  for (const double wrong : {0.031, double(NAN)})
    EXPECT_EQ(budgets(0, wrong),
              Names{"(d) lower bound, combination found: largest relative difference from brute force"});
  EXPECT_EQ(reserved(1000), Names{});
  EXPECT_EQ(reserved(1001), Names{"bytes reserved at the peak, compared with the budget"});
  EXPECT_EQ(reproduced(100), Names{});
  for (const double wrong : {100.1, double(NAN)})
    EXPECT_EQ(reproduced(wrong),
              Names{"(c) largest difference of a reproduced figure from the published one, MiB"});
}

TEST(L22_Checks, OfATrainedRun) {
  const auto last = [](double loss) {
    return failed_checks([&](Report& report) { check_last_loss(loss, report); });
  };
  const auto curve = [](const CurveVerdict& verdict) {
    return failed_checks([&](Report& report) { check_curve(verdict, 100, report); });
  };
  EXPECT_EQ(last(2), Names{});
  EXPECT_EQ(last(NAN), Names{"loss of the last step, not NaN"});
  EXPECT_EQ(curve({3, 0}), Names{});
  EXPECT_EQ(curve({3, 1}), Names{"intervals with a mean loss outside the expected range, of 3"});
  EXPECT_EQ(curve({0, 0}), Names{}) << "no interval is complete";
}

TEST(L22_Scoreboard, PublishedRunsAreReproduced) {
  const Context meta("meta");
  EXPECT_TRUE(failed_checks([](Report& report) { scoreboard_published(report); }).empty());
}

}  // namespace
}  // namespace gradus
