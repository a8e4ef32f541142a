// The program of lesson 22: runs that signals interrupt, and saved runs that are resumed, evaluated and
// sampled.
#include <csignal>

#include "src/core/table.h"
#include "tests/lessons/22_program_testing.h"

namespace gradus {
namespace {

struct L22_Program : ProgramTest {
  // Starts training in the background, executes the shell commands `then`, and waits for the end. The file
  // "out" has the output of the training.
  Outcome in_background(const std::string& flags, const std::string& then) const {
    return gradus("train " + flags + " >out 2>&1 & " + then + " wait $!");
  }
  static std::string until(const std::string& condition) {
    return "for i in $(seq 3000); do " + condition + " && break; sleep 0.01; done; ";
  }

  // Interrupts a run when its curve has `lines` lines, resumes it for 10 steps, and compares it with a run
  // without an interruption. The learning rate is constant, so it does not depend on the number of steps.
  void expect_resumes(const std::string& flags, int signal, int lines) const {
    const std::string way = flags + ", signal " + std::to_string(signal),
                      all = kTiny + flags + " --lr=0.01 --last-lr=0.01 ";
    const Outcome stopped = in_background(
        all + "--steps=100000000 --save=run --curve=curve" + (signal == SIGKILL ? " --save-every=1" : ""),
        until("[ \"$(cat curve 2>/dev/null | wc -l)\" -ge " + std::to_string(lines) + " ]") + "kill -" +
            std::to_string(signal) + " $!;");
    EXPECT_EQ(stopped.code, 128 + signal) << way << "\n" << read("out");
    EXPECT_EQ(read("out").find("; --load=run goes on from there") != std::string::npos, signal != SIGKILL)
        << way << "\n"
        << read("out");
    const int64_t saved = std::stoll(metadata("run").at("steps"));
    EXPECT_GE(saved, lines - 1) << way;
    const std::string end = " --steps=" + std::to_string(saved + 10);
    expect_done("train --load=run --save=run --curve=curve" + end);
    expect_done("train " + all + "--save=whole --curve=whole-curve" + end);
    EXPECT_TRUE(read("run") == read("whole")) << way;
    const std::vector<double> losses = losses_of("whole-curve");
    EXPECT_EQ(int64_t(losses.size()), saved + 10) << way;
    EXPECT_EQ(losses_of("curve"), losses) << way;
    for (const char* file : {"run", "curve", "whole", "whole-curve", "out"}) fs::remove(path(file));
    EXPECT_EQ(files(), 0) << way;
  }
  // The losses of steps 1, 2, 3, ...
  std::vector<double> losses_of(const std::string& curve) const {
    std::vector<double> losses;
    std::istringstream lines(read(curve));
    for (std::string line; std::getline(lines, line);) {
      const Json step = Json::parse(line);
      losses.push_back(step.at("loss"));
      EXPECT_EQ(step.at("step"), losses.size());
    }
    return losses;
  }
};

TEST_F(L22_Program, ResumesAfterSignals) {
  expect_resumes("--dropout=0.2", SIGINT, 5);
  expect_resumes("--precision=mixed-fp16 --workers=2", SIGTERM, 5);
  expect_resumes("--ranks=2 --zero=2", SIGTERM, 5);
  expect_resumes("--ranks=2 --tensor-ranks=2", SIGINT, 5);
}

TEST_F(L22_Program, ResumesAfterSigkill) {
  expect_resumes("", SIGKILL, 2);
  expect_resumes("--lora=2", SIGKILL, 9);
  expect_resumes("--ranks=2 --zero=3", SIGKILL, 5);
}

// The curve loses the lines of steps that came after the saved one; the resumed run writes them.
TEST_F(L22_Program, TheCurveContinuesFromTheSavedStep) {
  const std::string all = kTiny + std::string("--lr=0.01 --last-lr=0.01 --curve=curve --save=");
  expect_done("train " + all + "run --steps=4");
  fs::copy(path("run"), path("four"));
  expect_done("train --load=run --save=run --curve=curve --steps=9");
  EXPECT_EQ(losses_of("curve").size(), 9u);
  expect_done("train --load=four --save=four --curve=curve --steps=7");
  expect_done("train --load=run --save=run --curve=curve --steps=9");  // no step is left, so nothing changes
  const std::vector<double> losses = losses_of("curve");
  EXPECT_EQ(losses.size(), 7u);
  fs::remove(path("curve"));
  expect_done("train " + all + "whole --steps=7");
  EXPECT_EQ(losses_of("curve"), losses);
}

// The program sends the second signal after the first one was handled. The step is then not finished, and no
// file is written.
TEST_F(L22_Program, ASecondSignalEndsTheProgramAtOnce) {
  // SIGINT and SIGTERM, bits 1 and 14 of the signals that are caught.
  const std::string caught = "grep -q 'SigCgt:.*[4-7c-f]..[2367abef]$' /proc/$!/status";
  for (const auto& [first, second] : {std::pair(SIGINT, SIGTERM), {SIGTERM, SIGTERM}, {SIGINT, SIGINT}}) {
    const Outcome ended = in_background(
        "--device=emu --model=gpt-8x128x4 --context=128 --batch=16 --text-bytes=20000 --save=run",
        until(caught) + "kill -" + std::to_string(first) + " $!; " + until("! " + caught) + "kill -" +
            std::to_string(second) + " $!;");
    EXPECT_EQ(ended.code, 128 + second) << read("out");
    EXPECT_EQ(read("out"), "");
    EXPECT_FALSE(fs::exists(path("run")));
  }
}

// Ranks are processes here: if one of them receives a signal, all ranks end after the same step.
TEST_F(L22_Program, ASignalToOneProcessEndsAllAndSavesTheRun) {
  const std::string program = (build_folder() / "mpi" / kProgram).string();
  if (!fs::exists(program)) GTEST_SKIP() << "no MPI on this machine";
  const std::string mpiexec = fs::absolute("tests/tools/mpiexec.sh").string(),
                    last_process =
                        "for p in $(pgrep -x 22_scoreboard); do [ \"$(readlink /proc/$p/cwd)\" = "
                        "\"$PWD\" ] && last=$p; done; ";
  const Outcome ended =
      run(kProgram, "--help >/dev/null",  // the test is in the shell commands that run before it
          "cd '" + path() + "'; timeout 120 sh '" + mpiexec + "' 2 '" + program +
              "' --comm=mpi --ranks=2 train --zero=2 --save=run --curve=curve --steps=100000000 " + kTiny +
              " >out 2>&1 & " + until("[ \"$(cat curve 2>/dev/null | wc -l)\" -ge 5 ]") + last_process +
              "kill -TERM $last; wait $!; echo code $?; ");
  EXPECT_NE(ended.output.find("code 143"), std::string::npos) << ended.output << read("out");
  EXPECT_NE(read("out").find("; --load=run goes on from there"), std::string::npos) << read("out");
  EXPECT_EQ(int64_t(losses_of("curve").size()), std::stoll(metadata("run").at("steps")));
  EXPECT_EQ(gradus("eval --load=run").code, 0);
}

TEST_F(L22_Program, WithoutSaveAMessageSaysThatNothingIsSaved) {
  in_background(kTiny + std::string("--steps=100000000 --curve=curve"),
                until("[ -s curve ]") + "kill -INT $!;");
  EXPECT_NE(read("out").find("nothing is saved"), std::string::npos) << read("out");
}

// A run that was initialized from the file of a base model is resumed without this file.
TEST_F(L22_Program, TheBaseModelIsNeededOnlyAtTheStart) {
  const std::string all = kTiny + std::string("--lr=0.01 --last-lr=0.01 ");
  expect_done("train " + all + "--steps=20 --save=base --curve=base-curve");
  for (const std::string way : {"--lora=2 --frozen=4-bits --precision=mixed", "--precision=mixed-fp16"}) {
    const std::string begin = "train " + all + way + " --weights=base --seed=2 ";
    expect_done(begin + "--steps=3 --save=run --curve=curve");
    expect_done(begin + "--steps=6 --save=whole");
    EXPECT_EQ(settings("run").at("weights"), "base");
    EXPECT_LT(losses_of("curve").at(0), losses_of("base-curve").at(0) - 0.1)
        << way << ": the run does not begin with the base's weights";
    fs::rename(path("base"), path("elsewhere"));
    expect_done("train --load=run --save=run --steps=6");
    EXPECT_TRUE(read("run") == read("whole")) << way;
    expect_done("eval --load=run");
    fs::rename(path("elsewhere"), path("base"));
    fs::remove(path("run")), fs::remove(path("whole"));
  }
}

double number_after(const std::string& words, const std::string& text) {
  const size_t at = text.find(words);
  EXPECT_NE(at, std::string::npos) << text;
  return at == text.npos ? NAN : std::stod(text.substr(at + words.size()));
}

TEST_F(L22_Program, EvalGivesTheLossThatTrainingReported) {
  for (const std::string way : {"", "--dropout=0.2 --precision=mixed --keep=sqrt", "--lora=2 --frozen=4-bits",
                                "--blocks=llama --experts=4 --calls=captured"}) {
    expect_done("train " + (kTiny + way) + " --steps=20 --lr=0.01 --save=run --json=report");
    const double held_out = Json::parse(read("report")).at("rows").at(0).at("loss_held_out");
    EXPECT_LT(held_out, 5.5) << way << ": training did not reduce the loss";
    const Outcome eval = gradus("eval --load=run");
    EXPECT_TRUE(eval.output.ends_with("\nheld-out loss " + number_text(held_out) +
                                      " nats per byte, after 20 steps\n"))
        << way;
    fs::remove(path("run"));
  }
}

TEST_F(L22_Program, TheSeedDeterminesTheSample) {
  expect_done("train " + std::string(kTiny) + " --steps=40 --lr=0.01 --save=run");
  const auto sample = [&](const std::string& flags) {
    const Outcome outcome = gradus("sample --load=run --bytes=80 " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    return outcome.output;
  };
  const std::string text = sample("");
  EXPECT_GE(text.size(), 80u);
  EXPECT_EQ(sample(""), text);
  EXPECT_EQ(sample("--seed=1"), text) << "the run's own seed";
  EXPECT_NE(sample("--seed=2"), text);
  EXPECT_EQ(sample("--seed=2"), sample("--seed=2"));
  EXPECT_TRUE(sample("--prompt='The cat'").starts_with("The cat"));
}

TEST_F(L22_Program, ARunOfSeveralRanksIsEvaluatedOnOneDevice) {
  const std::string all = std::string(kTiny) + " --steps=20 --lr=0.01 ";
  expect_done("train " + all + "--save=one");
  const double one = number_after("\nheld-out loss ", gradus("eval --load=one").output);
  for (const char* way : {"--ranks=4 --zero=3", "--ranks=4 --tensor-ranks=2 --pipeline-ranks=2"}) {
    expect_done("train " + (all + way) + " --save=run");
    EXPECT_NEAR(number_after("\nheld-out loss ", gradus("eval --load=run").output), one, 2e-3) << way;
    EXPECT_EQ(gradus("sample --load=run --bytes=40").output, gradus("sample --load=one --bytes=40").output);
    fs::remove(path("run"));
  }
}

}  // namespace
}  // namespace gradus
