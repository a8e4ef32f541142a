// The programs as users run them: whatever is wrong with their arguments, files or limits gives a sentence
// with a hint on standard error and a non-zero exit code, and damages nothing that was there.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/core/json.h"
#include "src/data/corpus.h"
#include "tests/devices.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {
namespace fs = std::filesystem;

const char* const kLesson = "lessons/03_transformer";

// A folder of its own for each test, with a text long enough to train on.
class L03_Programs : public testing::Test {
 protected:
  L03_Programs() {
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::string text;
    for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
    write("text.txt", text);
  }
  ~L03_Programs() override { fs::remove_all(folder); }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  std::string with_data(const std::string& name) const { return "--steps=1 --data='" + path(name) + "' "; }

  const fs::path folder = fs::temp_directory_path() / ("gradus_programs_" + std::to_string(::getpid()));
};

TEST_F(L03_Programs, RefuseArgumentsThatCannotBe) {
  ASSERT_FALSE(lessons().empty());
  for (const std::string& program : lessons()) {
    expect_refused(run(program, "--stepps=5"), 2, "--stepps");
    expect_refused(run(program, "--device=abacus"), 2, "--device");
    expect_refused(run(program, "--seed=-1"), 2, "--seed");
  }
  for (const char* steps : {"0", "-3", "many", "", "99999999999999999999"})
    expect_refused(run(kLesson, std::string("--steps=") + steps), 2, "--steps");
  expect_refused(run(kLesson, "--memory=lots"), 2, "--memory");
  expect_refused(run(kLesson, "--print=money"), 2, "--print");
  expect_refused(run(kLesson, "train"), 2, "train");
}

TEST_F(L03_Programs, HelpNamesEveryFlagAndSucceeds) {
  const Outcome help = run(kLesson, "--help");
  EXPECT_EQ(help.code, 0);
  for (const char* flag :
       {"--device", "--steps", "--seed", "--memory", "--data", "--json", "--print", "--check"})
    EXPECT_NE(help.output.find(flag), std::string::npos) << flag;
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

// The text between two marks of a report.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

TEST_F(L03_Programs, LessonsNeedTheSameBytesOnEveryDeviceAndFindTheSameLosses) {
  std::vector<std::string> devices{"meta"};
  for (const char* name : devices_with_data()) devices.push_back(name);
  for (const std::string lesson : {"02_autograd --steps=20", "03_transformer --size=tiny --steps=20"}) {
    std::map<std::string, std::string> report;
    for (const std::string& device : devices) {
      const std::string json = path(device + ".json"), name = lesson.substr(0, lesson.find(' '));
      const Outcome outcome =
          run("lessons/" + name, lesson.substr(name.size()) + " --device=" + device + " --json=" + json);
      ASSERT_EQ(outcome.code, 0) << outcome.output;
      report[device] = read_text_file(json);
      const auto bytes = [](const std::string& r) {
        return between(r, "\"peak_bytes\":", ",\"predicted_bytes\"");
      };
      EXPECT_NE(bytes(report["meta"]).find("reserved_bytes"), std::string::npos);
      EXPECT_EQ(bytes(report[device]), bytes(report["meta"])) << lesson << " on " << device;
    }
    // Sums in another order: the loss is a mean over fp32 numbers of size 5, and 20 steps hardly magnify
    // that.
    for (const std::string loss : {"\"loss_first\":", "\"loss_last\":"})
      for (const char* device : devices_with_data()) {
        const double cpu = std::stod(between(report["cpu"], loss, ",")),
                     got = std::stod(between(report[device], loss, ","));
        EXPECT_NEAR(got, cpu, 1e-5 * cpu) << lesson << " on " << device << " " << loss;
      }
  }
}

// With few steps, too, each check holds, or is there and says why it is skipped.
TEST_F(L03_Programs, ChecksHoldOrAreSkippedAtEachNumberOfSteps) {
  const std::string there = "cd '" + folder.string() + "';";
  const auto checks = [&](const std::string& program, const std::string& args) {
    const Outcome outcome = run(program, args + " --json=checks.json", there);
    EXPECT_EQ(outcome.code, 0) << program << " " << args << "\n" << outcome.output;
    const Json report = parse_json(read_text_file(path("checks.json")));
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

TEST_F(L03_Programs, RefuseTextThatIsNone) {
  expect_refused(run(kLesson, with_data("nowhere.txt")), 1, "no such file");
  write("empty.txt", "");
  expect_refused(run(kLesson, with_data("empty.txt")), 1, "holds no text");
  std::string junk(5000, '\0');
  for (size_t i = 0; i < junk.size(); ++i) junk[i] = char(i * 167 + i / 256);
  write("junk.bin", junk);
  expect_refused(run(kLesson, with_data("junk.bin")), 1, "not text");
  write("short.txt", "too short");
  expect_refused(run(kLesson, with_data("short.txt")), 1, "short");
  fs::create_directory(folder / "nothing");
  expect_refused(run(kLesson, with_data("nothing")), 1, "holds no text");
}

TEST_F(L03_Programs, ABudgetThatIsTooSmallIsExplained) {
  const Outcome outcome = run(kLesson, with_data("text.txt") + "--memory=12MiB");
  expect_refused(outcome, 1, "budget");
  EXPECT_NE(outcome.output.find("weight"), std::string::npos) << "the table by kind: " << outcome.output;
}

// A program that is refused at once has printed that sentence only.
void expect_refused_at_once(const Outcome& outcome, const std::string& sentence) {
  expect_refused(outcome, 1, sentence);
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

TEST_F(L03_Programs, WhatCannotBeWrittenIsFoundOutBeforeTheWork) {
  const std::string there = "cd '" + folder.string() + "';", nowhere = path("no/such/folder/file");
  write("weights", "an earlier file"), write("build", "a file where a folder should be");
  for (const std::string& program : lessons()) {
    const std::string steps = "--steps=1 --device=cpu ";
    expect_refused_at_once(run(program, steps + "--json=" + nowhere, there), "cannot be written");
    expect_refused_at_once(run(program, steps + "--json=" + folder.string(), there), "no regular file");
    expect_refused_at_once(run(program, steps, there), "build/plots/");
  }
  expect_refused_at_once(run(kLesson, "--save=" + nowhere, there), "cannot be written");
  expect_refused_at_once(run(kLesson, "--save=" + folder.string(), there), "no regular file");
  expect_refused_at_once(run(kLesson, "--save=weights --json=" + nowhere, there), "cannot be written");
  EXPECT_EQ(read_text_file(path("weights")), "an earlier file");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 3) << "and text.txt";
}

// A limit on file sizes stands for a full disk: the write fails half-way.
TEST_F(L03_Programs, AFullDiskWhileSavingLeavesTheEarlierFile) {
  write("weights", "an earlier checkpoint");
  const Outcome outcome = run(kLesson, with_data("text.txt") + "--save=" + path("weights"),
                              "trap '' XFSZ; ulimit -f 1000; cd '" + folder.string() + "' &&");
  expect_refused(outcome, 1, "an earlier file of this name is unchanged");
  EXPECT_EQ(read_text_file(path("weights")), "an earlier checkpoint");
  for (const auto& entry : fs::directory_iterator(folder))
    EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
}

// Killed half-way, a run has not touched the file that it would have replaced.
TEST_F(L03_Programs, AnInterruptedRunLeavesTheEarlierFile) {
  write("weights", "an earlier checkpoint");
  const Outcome outcome =
      run(kLesson, "--data='" + path("text.txt") + "' --steps=100000000 --save=" + path("weights"),
          "timeout -s KILL 3");
  EXPECT_EQ(outcome.code, 128 + 9) << outcome.output;
  EXPECT_EQ(read_text_file(path("weights")), "an earlier checkpoint");
}

// Pictures that a run does not draw need no folder.
TEST_F(L03_Programs, WhatIsNotWrittenIsNotTried) {
  write("build", "a file where a folder should be");
  const std::string there = "cd '" + folder.string() + "';";
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
  std::string text;
  for (int64_t i = 0; text.size() < 3'000'000; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
  write("long.txt", text);
  const std::string args = "--steps=1 --device=meta --data='";
  const Outcome part = run(kLesson, args + path("long.txt") + "'"),
                all = run(kLesson, args + path("text.txt") + "'");
  EXPECT_NE(part.output.find("scored: 262,144 of the held-out bytes, evenly drawn"), std::string::npos)
      << part.output;
  EXPECT_EQ(all.output.find("scored:"), std::string::npos) << all.output;
}

}  // namespace
}  // namespace gradus
