// The programs as users run them: whatever is wrong with their arguments, files or limits gives a sentence
// with a hint on standard error and a non-zero exit code, and damages nothing that was there.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/core/json.h"
#include "tests/folder_testing.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {

const char* const kLesson = "lessons/03_transformer";

struct L03_Programs : FolderTest {
  const std::string there = "cd '" + path() + "';";
  void write_text(const std::string& name, size_t bytes) const {
    std::string text;
    for (int64_t i = 0; text.size() < bytes; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
    write(name, text);
  }
};

// What their common flags and files refuse is tests/train's.
TEST_F(L03_Programs, RefuseWhatTheyDoNotKnow) {
  ASSERT_FALSE(lessons().empty());
  for (const std::string& program : lessons()) expect_refused(run(program, "--stepps=5"), 2, "--stepps");
  expect_refused(run(kLesson, "train"), 2, "train");
  expect_refused(run(kLesson, "--steps=1 --data=nowhere.txt"), 1, "no such file");
}

TEST_F(L03_Programs, RefuseSizesThatDoNotGoTogether) {
  expect_refused(run("bench/step", "--dim=128 --heads=5"), 1, "heads");
  expect_refused(run("bench/step", "--dim=0"), 2, "--dim");
  expect_refused(run("bench/step", "--batch=-1"), 2, "--batch");
}

// In every build, and with every GPU hidden.
TEST_F(L03_Programs, WithoutAGpuCudaIsRefusedAndAutoIsTheCpu) {
  const char* const hidden = "CUDA_VISIBLE_DEVICES=";
  for (const char* program :
       {"lessons/01_gemm", "lessons/02_autograd", kLesson, "bench/step", "bench/kernels"})
    expect_refused(run(program, "--device=cuda", hidden), 1, "cuda cannot be used");
  const Outcome outcome = run("lessons/02_autograd", "--device=auto --steps=2", hidden);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("02_autograd on cpu"), std::string::npos) << outcome.output;
}

TEST_F(L03_Programs, BenchmarksRefuseMeta) {
  for (const char* program : {"bench/step", "bench/kernels"})
    expect_refused(run(program, "--device=meta"), 1, "nothing to time");
}

// With few steps, too, each check holds, or is there and says why it is skipped.
TEST_F(L03_Programs, ChecksHoldOrAreSkippedAtEachNumberOfSteps) {
  const auto checks = [&](const std::string& program, const std::string& args) {
    const Outcome outcome = run(program, args + " --json=checks.json", there);
    EXPECT_EQ(outcome.code, 0) << program << " " << args << "\n" << outcome.output;
    const Json report = Json::parse(read("checks.json"));
    std::vector<std::string> names;
    for (const Json& check : report.at("checks")) names.push_back(check.at("name"));
    return names;
  };
  const std::set<std::string> slow{"lessons/17_data_parallel", "lessons/18_zero"};
  const std::map<std::string, std::string> cheap{
      {"lessons/02_autograd", ""}, {"lessons/03_transformer", "--size=tiny "}, {"lessons/05_allocator", ""}};
  for (const std::string& program : lessons()) {
    if (run(program, "--print=example").output.find("is open") != std::string::npos) continue;
    const std::vector<std::string> names = checks(program, "--device=meta --steps=1");
    if (!slow.contains(program)) {
      EXPECT_EQ(names, checks(program, "--device=meta --steps=3")) << program << ": a check is left out";
    }
    if (!cheap.contains(program)) continue;
    for (const char* steps : {"1", "2"}) checks(program, cheap.at(program) + "--device=cpu --steps=" + steps);
  }
}

// A program that is refused at once has printed that sentence only.
void expect_refused_at_once(const Outcome& outcome, const std::string& sentence) {
  expect_refused(outcome, 1, sentence);
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

TEST_F(L03_Programs, WhatCannotBeWrittenIsFoundOutBeforeTheWork) {
  const std::string nowhere = path("no/such/folder/file");
  write("weights", "an earlier file"), write("build", "a file where a folder should be");
  for (const std::string& program : lessons()) {
    const std::string steps = "--steps=1 --device=cpu ";
    expect_refused_at_once(run(program, steps + "--json=" + nowhere, there), "cannot be written");
    expect_refused_at_once(run(program, steps + "--json=" + path(), there), "no regular file");
    expect_refused_at_once(run(program, steps, there), "build/plots/");
  }
  expect_refused_at_once(run(kLesson, "--save=" + nowhere, there), "cannot be written");
  expect_refused_at_once(run(kLesson, "--save=" + path(), there), "no regular file");
  expect_refused_at_once(run(kLesson, "--save=weights --json=" + nowhere, there), "cannot be written");
  EXPECT_EQ(read("weights"), "an earlier file");
  EXPECT_EQ(files(), 2);
}

// Pictures that a run does not draw need no folder.
TEST_F(L03_Programs, WhatIsNotWrittenIsNotTried) {
  write("build", "a file where a folder should be"), write_text("text.txt", 5000);
  for (const char* run_without :
       {"02_autograd --device=meta --steps=1", "03_transformer --device=meta --steps=1 --data=text.txt",
        "01_gemm --device=meta", "04_memory_anatomy --model=gpt2 --seq=64"}) {
    const std::string text = run_without, name = text.substr(0, text.find(' '));
    if (!fs::exists(build_folder() / "lessons" / name)) continue;
    const Outcome outcome = run("lessons/" + name, text.substr(name.size()), there);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
  }
}

TEST_F(L03_Programs, ALongTextIsScoredInPartAndTheOutputSaysSo) {
  write_text("long.txt", 3'000'000), write_text("text.txt", 5000);
  const std::string args = "--steps=1 --device=meta --data=";
  const Outcome part = run(kLesson, args + "long.txt", there), all = run(kLesson, args + "text.txt", there);
  EXPECT_NE(part.output.find("scored: 262,144 of the held-out bytes, evenly drawn"), std::string::npos)
      << part.output;
  EXPECT_EQ(all.output.find("scored:"), std::string::npos) << all.output;
}

}  // namespace
}  // namespace gradus
