// The memory calculator and the whole lesson 04, run as by a user. The flags of the lesson hold for every
// context that the lesson creates, not only for the first one.
#include <cmath>

#include "lessons/04_memory_anatomy/anatomy.h"
#include "lessons/04_memory_anatomy/batch_size.h"
#include "lessons/04_memory_anatomy/generation.h"
#include "tests/folder_testing.h"
#include "tests/lesson_testing.h"
#include "tests/program_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

const char* const kCalculator = "lessons/04_memory_anatomy";

struct L04_Programs : FolderTest {};

TEST_F(L04_Programs, TheCalculatorAnswers) {
  const std::string bert = "--model=bert-large --batch=4 --seq=512 ";
  const Outcome fits = run(kCalculator, bert + "--memory=14GiB --json=" + path("r.json"));
  EXPECT_EQ(fits.code, 0);
  for (const char* part : {"335,143,938 parameters", "The peak is reached in backward/", "attention.probs",
                           "fits into 14.0 GiB", "The largest batch that fits: ", "PASS"})
    EXPECT_NE(fits.output.find(part), std::string::npos) << part << " is missing in:\n" << fits.output;
  EXPECT_NE(read("r.json").find("\"weight\":1340575752,"), std::string::npos);
  EXPECT_NE(run(kCalculator, "--model=gpt2").output.find("Batch 1, 1024 tokens per sequence: needs "),
            std::string::npos);
  const Outcome not_fit = run(kCalculator, bert + "--device=cpu --memory=9GiB");
  EXPECT_EQ(not_fit.code, 0) << "a run that does not fit is an answer, not an error";
  EXPECT_NE(not_fit.output.find("does NOT fit into 9.0 GiB"), std::string::npos) << not_fit.output;
  EXPECT_EQ(run(kCalculator, bert + "--memory=1").code, 0);
  EXPECT_NE(run(kCalculator, bert + "--memory=2GiB").output.find("A batch of 1 does not fit."),
            std::string::npos);
}

TEST_F(L04_Programs, TheFormulaHoldsForEveryRecipe) {
  for (const char* recipe : {"fp32", "mixed", "mixed-fp16", "zero", "half"})
    EXPECT_EQ(run(kCalculator, std::string("--model=gpt2 --seq=64 --recipe=") + recipe).code, 0) << recipe;
}

TEST_F(L04_Programs, TheCalculatorRejectsInvalidArguments) {
  const Outcome unknown = run(kCalculator, "--model=bert-larg");
  expect_refused(unknown, 2, "did you mean bert-large?");
  expect_refused(unknown, 2, "polyglot-ko-1.3b");
  expect_refused(run(kCalculator, "--model=gpt-0x1x1"), 2, "at least 1");
  expect_refused(run(kCalculator, "--model=gpt2 --recipe=fp8"), 2, "fp32, mixed, mixed-fp16, zero, half");
  for (const char* flag : {"--memory=16GB", "--batch=0"})
    expect_refused(run(kCalculator, std::string("--model=gpt2 ") + flag), 2, std::string(flag).substr(0, 5));
  for (const char* flag : {"--batch=4", "--seq=64", "--recipe=half"})
    expect_refused(run(kCalculator, std::string("--device=meta ") + flag), 2, "--model=NAME");
  expect_refused(run(kCalculator, "--model=bert-large --seq=513"), 1, "at most the context, 512");
  expect_refused(run(kCalculator, "--model=gpt-9x1000000x1000000 --batch=16777216"), 1,
                 "more than gradus can count");
}

std::string single_spaced(const std::string& text) {
  std::string squeezed;
  for (const char c : text)
    if (c != ' ' || squeezed.empty() || squeezed.back() != ' ') squeezed += c;
  return squeezed;
}

TEST_F(L04_Programs, TheLessonRunsOnMeta) {
  for (const char* steps : {"1", "2", "7"}) {
    const Outcome outcome = run(kCalculator, std::string("--device=meta --steps=") + steps);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("PASS"), std::string::npos);
    for (const char* row : {"polyglot-ko-1.3b half 256 1,331,810,304 10.4 GiB backward/linear 10 28 164",
                            "gpt2 in 16 bits 36.0 KiB 36.0 MiB 288.0 MiB"})
      EXPECT_NE(single_spaced(outcome.output).find(row), std::string::npos) << outcome.output;
  }
  expect_refused(run(kCalculator, "--device=meta --memory=20MiB"), 1, "out of memory");
}

// ---- the contexts of the lesson ----

struct L04_Contexts : testing::Test {
  const Context context{"cpu"};
  Report report{"04_memory_anatomy", current().device};
  TransformerConfig model{.vocab = 16, .context = 4, .layers = 1, .heads = 2, .channels = 8};
  static Lesson with(const std::vector<std::string>& flags) {
    return lesson_with(flags, "04_memory_anatomy");
  }
};

TEST_F(L04_Contexts, CheckHoldsInEveryPart) {
  model.norm_eps = NAN;  // the output of the first norm is NaN
  const Lesson checks = with({"--device=cpu", "--check=nan"}), plain = with({"--device=cpu"});
  const std::string stopped = "layernorm: element 0";
  expect_refused(stopped, [&] { generation_table(checks, model, report); });
  expect_refused(stopped, [&] { batch_size_table(checks, model, 2, 1 << 26, report); });
  const std::string without = refusal([&] { generation_table(plain, model, report); });
  EXPECT_EQ(without.find(stopped), std::string::npos) << without;
}

TEST_F(L04_Contexts, TheBudgetHoldsInEveryPart) {
  const Lesson small = with({"--device=meta", "--memory=64KiB"});
  expect_refused("budget 64.0 KiB", [&] { bytes_per_parameter_table(small, report); });
  expect_refused("budget 64.0 KiB", [&] { saved_activations_table(small, report); });
  expect_refused("budget 64.0 KiB", [&] { generation_table(small, model, report); });
}

}  // namespace
}  // namespace gradus
