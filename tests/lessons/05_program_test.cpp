// Lesson 05 as users run it: short runs pass, and what cannot be is a sentence.
#include <fstream>

#include "src/data/corpus.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {
namespace fs = std::filesystem;

const char* const kLesson = "lessons/05_allocator";

class L05_Program : public testing::Test {
 protected:
  L05_Program() {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~L05_Program() override { fs::remove_all(folder); }
  std::string history(const std::string& name) const {
    return "--device=meta --history='" + (folder / name).string() + "' ";
  }
  const fs::path folder = fs::temp_directory_path() / ("gradus_lesson05_" + std::to_string(::getpid()));
};

TEST_F(L05_Program, ShortRunsPassAndWriteTheirFiles) {
  const std::string json = (folder / "report.json").string(), there = "cd '" + folder.string() + "';";
  for (const char* steps : {"1", "2", "100"}) {
    const Outcome outcome =
        run(kLesson, history("a/new/folder") + "--json=" + json + " --steps=" + steps, there);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("wte.weight.grad leaks (backward/linear)"), std::string::npos);
    EXPECT_NE(outcome.output.find("differences (between/debug), 16.0 MiB in step 5"), std::string::npos);
    EXPECT_NE(read_text_file(json).find("\"name\":\"GPT-2 expandable\""), std::string::npos);
    EXPECT_GT(fs::file_size(folder / "a/new/folder/05_memory.html"), 10'000u);
    EXPECT_GT(fs::file_size(folder / "a/new/folder/05_snapshot.pickle"), 10'000u);
  }
  for (const char* picture : {"05_naive.svg", "05_emptied.svg", "05_faults.svg"})
    EXPECT_TRUE(fs::exists(folder / "build/plots" / picture)) << picture;
}

// Streams in which expandable segments do worst: one reserves 1.109 of what it allocates at its step 138, and
// one 138, and three ask for a page in a step whose batch is no longer than one before.
TEST_F(L05_Program, UnluckySeedsPass) {
  for (const char* flags : {"--seed=443 --steps=140", "--seed=1724 --steps=130"}) {
    const Outcome outcome = run(kLesson, history("unlucky") + flags, "cd '" + folder.string() + "';");
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
  EXPECT_EQ(outcome.output.find("What the allocator does"), std::string::npos) << "refused after work";
  std::ofstream(folder / "file") << "a file, no folder";
  expect_refused(run(kLesson, history("file")), 1, "its folder cannot be made");
  EXPECT_EQ(read_text_file((folder / "file").string()), "a file, no folder");
}

// A limit on file sizes stands for a full disk: the write fails half-way.
TEST_F(L05_Program, AFullDiskIsASentenceAndLeavesNothing) {
  expect_refused(run(kLesson, history("here"), "trap '' XFSZ; ulimit -f 8;"), 1, "Free some space");
  for (const auto& entry : fs::directory_iterator(folder / "here"))
    ADD_FAILURE() << entry.path() << " was left behind";
}

TEST_F(L05_Program, RefusesWhatCannotBe) {
  for (const char* steps : {"0", "-1", "ten"})
    expect_refused(run(kLesson, std::string("--steps=") + steps), 2, "--steps");
  expect_refused(run(kLesson, "--history"), 2, "--history");
  const Outcome outcome = run(kLesson, history("here") + "--memory=12MiB");
  expect_refused(outcome, 1, "out of memory");
  EXPECT_NE(outcome.output.find("budget 12.0 MiB"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace gradus
