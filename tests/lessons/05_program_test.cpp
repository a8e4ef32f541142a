// Lesson 05 as users run it: short runs pass, and a wrong call is answered with a sentence.
#include "tests/folder_testing.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {

const char* const kLesson = "lessons/05_allocator";

struct L05_Program : FolderTest {
  const std::string there = "cd '" + path() + "';";
  std::string history(const std::string& name) const {
    return "--device=meta --history='" + path(name) + "' ";
  }
};

TEST_F(L05_Program, ShortRunsPassAndWriteTheirFiles) {
  for (const char* steps : {"1", "2", "100"}) {
    const Outcome outcome =
        run(kLesson, history("a/new/folder") + "--json=report.json --steps=" + steps, there);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("leak: wte.weight.grad (backward/linear)"), std::string::npos);
    EXPECT_NE(outcome.output.find("differences (between/debug), 16.0 MiB"), std::string::npos);
    EXPECT_NE(read("report.json").find("\"name\":\"GPT-2 expandable\""), std::string::npos);
    EXPECT_GT(fs::file_size(root_ / "a/new/folder/05_memory.html"), 10'000u);
    EXPECT_GT(fs::file_size(root_ / "a/new/folder/05_snapshot.pickle"), 10'000u);
  }
  for (const char* picture : {"05_naive.svg", "05_emptied.svg", "05_faults.svg"})
    EXPECT_TRUE(fs::exists(root_ / "build/plots" / picture)) << picture;
}

// The seeds with the largest fragmentation of expandable segments: 1.109 at step 138 of one workload. In
// three workloads a page is allocated in a step whose batch is not longer than an earlier one.
TEST_F(L05_Program, UnluckySeedsPass) {
  for (const char* flags : {"--seed=443 --steps=140", "--seed=1724 --steps=130"}) {
    const Outcome outcome = run(kLesson, history("unlucky") + flags, there);
    EXPECT_EQ(outcome.code, 0) << flags << "\n" << outcome.output;
  }
}

TEST_F(L05_Program, TheTapeCanBePrintedAndEveryOutputChecked) {
  const Outcome outcome = run(kLesson, "--device=cpu --steps=2 --print=tape --check=nan");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("attention.probs"), std::string::npos) << outcome.output;
}

TEST_F(L05_Program, AHistoryThatCannotBeWrittenIsASentence) {
  const Outcome outcome = run(kLesson, "--device=meta --history=/proc/nowhere");
  expect_refused(outcome, 1, "/proc/nowhere");
  EXPECT_EQ(outcome.output.find("Findings in the memory"), std::string::npos) << "the error comes after work";
  write("file", "a file, no folder");
  expect_refused(run(kLesson, history("file")), 1, "its folder cannot be made");
  EXPECT_EQ(read("file"), "a file, no folder");
}

}  // namespace
}  // namespace gradus
