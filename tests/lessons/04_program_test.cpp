// The memory calculator and the walk of lesson 04 as users run them.
#include "src/data/corpus.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {
namespace fs = std::filesystem;

const char* const kCalculator = "lessons/04_memory_anatomy";

class L04_Programs : public testing::Test {
 protected:
  L04_Programs() {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~L04_Programs() override { fs::remove_all(folder); }
  std::string path(const std::string& name) const { return (folder / name).string(); }

  const fs::path folder = fs::temp_directory_path() / ("gradus_lesson04_" + std::to_string(::getpid()));
};

TEST_F(L04_Programs, TheCalculatorAnswers) {
  const std::string bert = "--model=bert-large --batch=4 --seq=512 ";
  const Outcome fits = run(kCalculator, bert + "--memory=14GiB --json=" + path("r.json"));
  EXPECT_EQ(fits.code, 0);
  for (const char* part : {"335,143,938 parameters", "The peak is reached in backward/", "attention.probs",
                           "fits into 14.0 GiB", "The largest batch that does: ", "PASS"})
    EXPECT_NE(fits.output.find(part), std::string::npos) << part << " is missing in:\n" << fits.output;
  EXPECT_NE(read_text_file(path("r.json")).find("\"weight\":1340575752,"), std::string::npos);
  EXPECT_NE(run(kCalculator, "--model=gpt2").output.find("batch 1 of 1024 tokens needs "), std::string::npos);
  const Outcome not_fit = run(kCalculator, bert + "--device=cpu --memory=9GiB");
  EXPECT_EQ(not_fit.code, 0) << "an answer, not an error";
  EXPECT_NE(not_fit.output.find("does NOT fit into 9.0 GiB"), std::string::npos) << not_fit.output;
  EXPECT_EQ(run(kCalculator, bert + "--memory=1").code, 0);
  EXPECT_NE(run(kCalculator, bert + "--memory=2GiB").output.find("nor does a batch of 1"), std::string::npos);
}

TEST_F(L04_Programs, TheFormulaHoldsForEveryRecipe) {
  for (const char* recipe : {"fp32", "mixed", "mixed-fp16", "zero", "half"})
    EXPECT_EQ(run(kCalculator, std::string("--model=gpt2 --seq=64 --recipe=") + recipe).code, 0) << recipe;
}

TEST_F(L04_Programs, TheCalculatorRefusesWhatCannotBe) {
  const Outcome unknown = run(kCalculator, "--model=bert-larg");
  expect_refused(unknown, 2, "did you mean bert-large?");
  expect_refused(unknown, 2, "polyglot-ko-1.3b");
  expect_refused(run(kCalculator, "--model=gpt-0x1x1"), 2, "at least 1");
  expect_refused(run(kCalculator, "--model=gpt-2x10x3"), 2, "do not divide");
  expect_refused(run(kCalculator, "--model=gpt2 --recipe=fp8"), 2, "fp32, mixed, mixed-fp16, zero, half");
  for (const char* memory : {"16GB", "'16 GiB'", "-1", "1e99", "", "GiB", "9999999999GiB"})
    expect_refused(run(kCalculator, std::string("--model=gpt2 --memory=") + memory), 2, "--memory");
  for (const char* batch : {"0", "-4", "1e3", "99999999999999999999"})
    expect_refused(run(kCalculator, std::string("--model=gpt2 --batch=") + batch), 2, "--batch");
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

TEST_F(L04_Programs, TheWalkRunsOnMeta) {
  for (const char* steps : {"1", "2", "7"}) {
    const Outcome outcome = run(kCalculator, std::string("--device=meta --steps=") + steps);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("PASS"), std::string::npos);
    for (const char* row : {"polyglot-ko-1.3b half 256 1,331,810,304 10.4 GiB backward/linear 10 28 164",
                            "gpt2 in 16 bits 36.0 KiB 36.0 MiB 288.0 MiB"})
      EXPECT_NE(single_spaced(outcome.output).find(row), std::string::npos) << outcome.output;
  }
  expect_refused(run(kCalculator, "--device=meta --memory=20MiB"), 1, "out of memory");
  expect_refused(run(kCalculator, "--device=meta --memory=100MiB"), 1, "budget 100.0 MiB");
}

}  // namespace
}  // namespace gradus
