// gpu-check (check.sh) on a simulated machine: its GPU, compilers, profilers and programs are scripts. Each
// script records that it ran, and waits while there is a file "slow".
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <regex>
#include <thread>

#include "tests/folder_testing.h"

namespace gradus {
namespace {

struct GpuCheck : FolderTest {
  struct Ended {
    int code;
    std::string output;
  };

  void SetUp() override {
    const std::string works = "echo \"${0##*/}\" >>runs; while [ -e slow ]; do sleep 0.02; done\n";
    script("bin/nvidia-smi",
           "case \"$*\" in *name*) echo A GPU ;; *compute_cap*) echo 9.0 ;; *mig*) echo Disabled ;;\n"
           "--list-gpus) echo 'GPU 0: A GPU (UUID: 1)' ;; esac\n");
    for (const char* name : {"bin/make", "bin/nvcc", "bin/python3", "build/cuda/bench/kernels",
                             "build/cuda/bench/attention", "build/cuda/bench/fusion", "build/cuda/bench/step",
                             "build/cuda/lessons/01_a", "build/cuda/lessons/02_b", "build/cuda/lessons/03_c"})
      script(name, works);
    const std::string figures =
        "echo '{\"ms_per_step\": 1, \"ms_update\": 1, \"gemm_peak_gflops\": 1, \"gflops\": 1}'\n";
    script("bin/python3", figures);
    script("build/cuda/bench/step", works + figures);
    for (const char* name : {"bin/compute-sanitizer", "bin/ncu"})
      script(name, "while [ \"${1#--}\" != \"$1\" ]; do shift; done; exec \"$@\"\n");
    for (const char* name : {"build/cuda/tests/kernels_test", "build/cuda/tests/nn_test"})
      script(name, "case \"$*\" in *list*) seq -f '  T%g' 45; exit ;; esac\n" + works);
    script("build/gpu_report", "echo \"$3\"\n");
    write("packages.commit", "abc\n");
    fs::create_directory_symlink(before_ / "tests", root_ / "tests");
    fs::current_path(root_);
  }
  void script(const std::string& name, const std::string& text) const {
    write(name, "#!/bin/sh\n" + text);
    fs::permissions(path(name), fs::perms::owner_all);
  }
  static std::string command(const std::string& stages, const std::string& variables) {
    return "env CUDA_HOME=/none PATH=\"" + fs::current_path().string() + "/bin:/usr/bin:/bin\" " + variables +
           " sh tests/gpu/check.sh " + stages + " >out 2>&1";
  }
  Ended check(const std::string& stages, const std::string& variables = "") const {
    const int status = std::system(command(stages, variables).c_str());
    static const std::regex seconds("(failed|skipped) [0-9]+");  // the time depends on the machine
    return {WEXITSTATUS(status), std::regex_replace(read("out"), seconds, "$1")};
  }
  // Starts check.sh in the background, as the leader of a session; its process id is in the file pid.
  static void begin(const std::string& stages) {
    std::system(("setsid " + command(stages, "") + " & echo $! >pid").c_str());
  }
  // Kills all processes of the session at once, as a queue ends a job.
  static void kill_session(int leader) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      if (pid.find_first_not_of("0123456789") == pid.npos && ::getsid(std::stoi(pid)) == leader)
        ::kill(std::stoi(pid), SIGKILL);
    }
  }
  static bool waited_for(const std::function<bool()>& is_so) {
    for (int i = 0; i < 1000 && !is_so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return is_so();
  }
  int64_t runs(const std::string& of) const {
    std::istringstream lines(read("runs"));
    int64_t count = 0;
    for (std::string line; std::getline(lines, line);) count += line == of;
    return count;
  }
  std::string result(const std::string& job) const { return read("build/gpu/" + job + ".result"); }
  int64_t results(const std::string& stage) const {
    int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(path("build/gpu/" + stage)))
      count += entry.path().extension() == ".result";
    return count;
  }
  static void expect_said(const Ended& ended, const std::string& sentence) {
    EXPECT_NE(ended.output.find(sentence), std::string::npos) << "no \"" << sentence << "\" in:\n"
                                                              << ended.output;
  }
};

TEST_F(GpuCheck, EachStageGoesOnAfterItWasKilled) {
  for (const char* stage : {"doctor", "build", "kernels", "tests", "memcheck", "racecheck", "initcheck",
                            "synccheck", "lessons", "bench", "pytorch", "counters"}) {
    write("slow", "");
    write("runs", "");
    begin(stage);
    ASSERT_TRUE(waited_for([&] { return !read("runs").empty(); })) << stage << ": " << read("out");
    kill_session(std::stoi(read("pid")));
    const int64_t before_it = results(stage);
    fs::remove("slow");
    const Ended again = check(stage);
    EXPECT_EQ(again.code, 0) << stage << ": " << again.output;
    EXPECT_EQ(again.output.find("failed"), std::string::npos) << again.output;
    EXPECT_GT(results(stage), before_it) << stage << " was not interrupted";
    const std::string before = read("runs");
    EXPECT_EQ(check(stage).code, 0);
    EXPECT_EQ(read("runs"), before) << stage << " repeated finished jobs";
  }
}

TEST_F(GpuCheck, WhatWasInterruptedIsRunAgainAndWhatWasDoneIsNot) {
  script("build/cuda/lessons/02_b",
         "echo 02_b >>runs; echo $$ >of_b; while [ -e slow ]; do sleep 0.02; done\n");
  write("slow", "");
  script("build/cuda/lessons/01_a", "echo 01_a >>runs\n");
  begin("lessons");
  ASSERT_TRUE(waited_for([&] { return !read("of_b").empty(); })) << read("out");
  ASSERT_EQ(::kill(std::stoi(read("pid")), SIGTERM), 0);
  EXPECT_TRUE(waited_for([] { return std::system("kill -0 $(cat of_b) 2>/dev/null") != 0; }))
      << "its job still runs";
  EXPECT_EQ(result("lessons/01_a").substr(0, 6), "passed");
  EXPECT_EQ(result("lessons/02_b"), "");
  fs::remove("slow");
  EXPECT_EQ(check("lessons").code, 0);
  EXPECT_EQ(runs("01_a"), 1);
  EXPECT_EQ(runs("02_b"), 2);
  EXPECT_EQ(runs("03_c"), 1);
}

TEST_F(GpuCheck, AFailureDoesNotHideTheNext) {
  script("build/cuda/lessons/01_a", "exit 3\n");
  const Ended ended = check("lessons bench");
  EXPECT_EQ(ended.code, 1);
  expect_said(ended, "lessons/01_a: failed exit code 3\n");
  EXPECT_EQ(runs("02_b"), 1);
  EXPECT_EQ(runs("fusion"), 1);
  EXPECT_EQ(check("lessons").code, 1) << "it stays failed";
}

TEST_F(GpuCheck, AJobThatTakesTooLongHasFailed) {
  script("bin/timeout", "exit 124\n");
  expect_said(check("lessons"), "lessons/01_a: failed it was ended after 500 s\n");
}

TEST_F(GpuCheck, TestsThatDoNotSeeTheGpuHaveFailed) {
  script("build/cuda/tests/kernels_test", "");
  const Ended ended = check("kernels racecheck");
  EXPECT_EQ(ended.code, 1);
  expect_said(ended, "kernels/kernels_test: failed exit code 1\n");
  expect_said(ended, "racecheck/kernels_test: failed exit code 1\n");
}

TEST_F(GpuCheck, RanksTakeAGpuEach) {
  write("lessons/02_b/main.cpp", "#include \"src/parallel/comm/processes.h\"\n");
  script("bin/mpicxx", "");
  expect_said(check("lessons"), "lessons/02_b: skipped each rank needs its own GPU, but there is only one\n");
  script(
      "bin/nvidia-smi",
      "case \"$*\" in *name*) echo A GPU ;; --list-gpus) printf 'GPU 0: A GPU\\nGPU 1: A GPU\\n' ;; esac\n");
  script("bin/make", "echo \"$*\" >>runs\n");
  check("lessons");
  EXPECT_EQ(runs("SM= mpi-02 COMM=nccl RANKS=2 ARGS=--device=cuda"), 1);
}

TEST_F(GpuCheck, PartsHoldAllTests) {
  EXPECT_EQ(check("memcheck").code, 0);
  for (const char* part : {"1", "2", "3"})
    EXPECT_NE(result(std::string("memcheck/kernels_test_") + part + "_of_3"), "") << part;
}

TEST_F(GpuCheck, WithoutAGpuTheRestGoesOn) {
  fs::remove("bin/nvidia-smi");
  const Ended ended = check("");
  EXPECT_EQ(ended.code, 0) << ended.output;
  for (const char* job :
       {"doctor/doctor: passed", "build/programs: passed", "kernels/kernels_test_1_of_1: skipped no GPU",
        "tests/nn_test_1_of_1: skipped no GPU", "synccheck/kernels_test_3_of_3: skipped no GPU",
        "lessons/03_c: skipped no GPU", "bench/fusion: skipped no GPU", "pytorch/steps: skipped no GPU",
        "counters/step: skipped no GPU"})
    expect_said(ended, job);
}

TEST_F(GpuCheck, WhatCouldNotBeRunIsTriedAgain) {
  const std::string smi = read("bin/nvidia-smi");
  fs::remove("bin/nvidia-smi");
  check("lessons");
  script("bin/nvidia-smi", smi.substr(smi.find('\n') + 1));
  check("lessons");
  EXPECT_EQ(result("lessons/01_a").substr(0, 6), "passed");
}

TEST_F(GpuCheck, BeginsNothingAtTheEndOfALimit) {
  script("bin/date",
         "now=$(($(cat now) + 60)); echo $now | tee now\n");  // each call of date is a minute later
  write("now", "0");
  const Ended ended = check("lessons", "LIMIT=100");
  EXPECT_EQ(ended.code, 0);
  expect_said(ended, "LIMIT is reached, 3 jobs are left");
  EXPECT_EQ(read("runs"), "");
  fs::remove("bin/date");
  EXPECT_EQ(check("lessons", "LIMIT=540").code, 0);
  EXPECT_EQ(runs("03_c"), 1);
  expect_said(check("bench", "LIMIT=99"), "LIMIT=99 is too short for any job; the minimum is 100");
}

TEST_F(GpuCheck, AJobThatALimitCutsOffIsRunAgain) {
  script("bin/timeout", "exit 124\n");
  const Ended ended = check("build", "LIMIT=100");
  EXPECT_EQ(ended.code, 0);
  expect_said(ended, "build/programs: stopped by LIMIT; the next run continues\n");
  fs::remove("bin/timeout");
  check("build");
  EXPECT_EQ(result("build/programs").substr(0, 6), "passed");
}

TEST_F(GpuCheck, AJobThatWasKilledHasFailed) {
  script("build/cuda/lessons/01_a", "kill -9 $$\n");
  expect_said(check("lessons"), "failed it was killed; is there too little memory?\n");
}

TEST_F(GpuCheck, AGpuThatProgramsDoNotSeeIsNone) {
  script("bin/nvidia-smi",
         "case \"$1\" in --id=[01]) echo A GPU ;; *) echo No devices were found; exit 6 ;; esac\n");
  for (const char* none : {"", "7", "-1"})
    expect_said(check("lessons", std::string("CUDA_VISIBLE_DEVICES=") + none),
                "lessons/01_a: skipped no GPU");
  EXPECT_EQ(check("lessons", "CUDA_VISIBLE_DEVICES=1,0").code, 0);
  EXPECT_EQ(runs("01_a"), 1);
}

TEST_F(GpuCheck, SkippedResultsAreNotKept) {
  write("build/gpu/kernels/kernels_test.result", "skipped 0 it was not built\n");
  check("kernels");
  EXPECT_EQ(result("kernels/kernels_test"), "");
}

TEST_F(GpuCheck, AgainForgetsTheStagesThatAreNamed) {
  check("lessons bench");
  check("lessons", "AGAIN=1");
  EXPECT_EQ(runs("01_a"), 2);
  EXPECT_EQ(runs("fusion"), 1);
}

TEST_F(GpuCheck, ResultsAreOfOneStateOfTheSources) {
  check("lessons");
  expect_said(check("lessons"), "report.md");
  EXPECT_EQ(runs("01_a"), 1);
  write("packages.commit", "def\n");
  expect_said(check("lessons"), "belong to different sources or to a different GPU: all stages start again");
  EXPECT_EQ(runs("01_a"), 2);
}

TEST_F(GpuCheck, NoPermissionForCountersIsNoFailure) {
  script("bin/ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1\n");
  const Ended ended = check("counters");
  EXPECT_EQ(ended.code, 0);
  expect_said(ended, "counters/step: skipped no permission to read the GPU's counters");
}

TEST_F(GpuCheck, ToolsThatAreNotThereAreNamed) {
  for (const char* tool : {"bin/ncu", "bin/compute-sanitizer", "bin/nvcc"}) fs::remove(tool);
  script("bin/python3", "exit 1\n");
  const Ended ended = check("build memcheck counters pytorch");
  for (const char* sentence :
       {"build/programs: skipped there is no nvcc; CUDA_HOME= names", "compute-sanitizer is missing",
        "ncu is missing", "no PyTorch that sees a GPU: python3; PYTHON= names a different Python"})
    expect_said(ended, sentence);
  EXPECT_EQ(ended.code, 0);
}

TEST_F(GpuCheck, ACompilerThatIsTooOldIsNamed) {
  script("bin/old", "exit 1\n");
  expect_said(check("build", "CXX=old"), "build/programs: skipped old is missing, or does not have C++20");
}

TEST_F(GpuCheck, SaysWhatAReaderMustKnowOfTheMachine) {
  EXPECT_EQ(read("build/gpu/machine.txt"), "");
  script("bin/nvidia-smi",
         "case \"$*\" in *name*) echo A GPU ;; *compute_cap*) echo 9.0 ;; *mig*) echo Enabled ;;\n"
         "--list-gpus) printf 'GPU 0: A GPU\\n  MIG 3g.40gb     Device  0: (UUID: 1)\\nGPU 1: A GPU\\n' ;; "
         "esac\n");
  script("bin/df", "echo Filesystem 1024-blocks Used Available; echo /dev/x 9999999 9000000 999999\n");
  check("doctor");
  const std::string machine = read("build/gpu/machine.txt");
  for (const char* sentence :
       {"There are 2 GPUs; all jobs but the ranks use one of them (CUDA_VISIBLE_DEVICES=K chooses it).",
        "The GPU is divided (MIG): the figures are for one part, such as MIG 3g.40gb.",
        "The disk has 976 MiB left; a build takes 3,000."})
    EXPECT_NE(machine.find(sentence), std::string::npos) << sentence << " is not in: " << machine;
}

TEST_F(GpuCheck, AStageThatThereIsNotIsRefused) {
  const Ended ended = check("lessons nothing");
  EXPECT_EQ(ended.code, 2);
  expect_said(ended, "there is no stage nothing; the stages are: doctor build");
  EXPECT_EQ(read("runs"), "");
}

}  // namespace
}  // namespace gradus
