// Ranks that are processes: the same bytes as from the simulated ones, and an end of all processes when one
// fails.
#include <poll.h>
#include <signal.h>

#include <chrono>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/core/timing.h"
#include "tests/folder_testing.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {

const char* kProgram = "mpi/tests/mpi_program";

class L17_Mpi : public FolderTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(build_folder() / kProgram))
      GTEST_SKIP() << "no MPI on this machine, so programs whose ranks are processes were not built";
  }

 public:
  static Outcome start(int64_t ranks, const std::string& program, const std::string& args) {
    return run(program, args, "timeout 120 sh tests/tools/mpiexec.sh " + std::to_string(ranks));
  }
};

struct L18_Mpi : L17_Mpi {};
struct L19_Mpi : L17_Mpi {};
struct L20_Mpi : L17_Mpi {};

TEST_F(L17_Mpi, RandomProgramsGiveTheReferencesBytes) {
  for (const int64_t ranks : {1, 2, 4}) {
    const Outcome o = start(ranks, kProgram, "");
    EXPECT_EQ(o.code, 0) << ranks << " ranks: " << o.output;
    EXPECT_NE(o.output.find("came to its end"), std::string::npos);
  }
}

// Any failure of one rank ends all ranks with a message, or with the launcher's message if the rank cannot
// print one.
TEST_F(L17_Mpi, WhatGoesWrongOnOneRankEndsAllWithASentence) {
  struct Case {
    std::string how, when, sentence, or_sentence = {};  // or_: if either of two ranks may be the first
  };
  std::vector<Case> cases{
      {"mismatch", "loop", "is all_reduce of 7 fp32"},
      {"'kind of letter'", "loop", "rank 1: recv of 8 int32 from rank 0: what was sent are 8 fp32"},
      {"letter", "loop", "rank 1: recv of 5 fp32 from rank 0: what was sent are 8 fp32"},
      {"'other group'", "loop", "is split into different groups"},
      {"'mismatch in a group'", "loop",
       "its collective number 1 in group 'pairs' of ranks 1, 3 is all_reduce of 7 fp32",
       "its collective number 1 in group 'pairs' of ranks 1, 3 is all_reduce of 8 fp32, that of rank 3 is "
       "all_reduce of 7 fp32"},
      {"'group ends'", "loop",
       "a Comm in group 'pairs' of ranks 0, 1, 2, 3 has ended while all_reduce of 8 fp32 was under way"},
      {"'throw within'", "loop", "rank 1: no luck"},
      {"leave", "loop", "that of rank 1 is barrier"},
      {"stop", "start", "MPI_Comm_dup: no answer for 2 s (--comm-timeout)"},
      {"stop", "loop", "all_reduce of 8 fp32: no answer for 2 s (--comm-timeout)"},
      {"stop", "between", "no answer for 2 s (--comm-timeout)"},
      {"stop", "end", "MPI_Finalize: no answer for 2 s (--comm-timeout)"}};
  for (const char* when : {"start", "loop", "between", "end"}) {
    cases.push_back({"throw", when, "rank 1: no luck"});
    cases.push_back({"kill", when, ""});
    cases.push_back({"exit", when, ""});
  }
  const auto timed = [](const Case& c, Outcome& o) {
    const double begin = seconds_now();
    o = start(4, kProgram, "--how=" + c.how + " --when=" + c.when + " --comm-timeout=2");
    return seconds_now() - begin;
  };
  Outcome o;
  const double good =
      timed({"nothing", "never", ""}, o);  // on a busy machine the start alone may take seconds
  EXPECT_EQ(o.code, 0) << o.output;
  EXPECT_EQ(o.output.find("came to its end"), o.output.rfind("came to its end")) << "only one rank prints";
  for (const Case& c : cases) {
    EXPECT_LT(timed(c, o), 10 + 2 * good) << c.how << " " << c.when;
    EXPECT_NE(o.code, 0) << c.how << " " << c.when << ": " << o.output;
    const bool said = o.output.find(c.sentence) != std::string::npos ||
                      (!c.or_sentence.empty() && o.output.find(c.or_sentence) != std::string::npos);
    EXPECT_TRUE(said) << c.how << " " << c.when << ": " << o.output;
    EXPECT_EQ(o.output.find("rank rank"), std::string::npos) << "mixed messages of two ranks: " << o.output;
    const bool ended = o.output.find("came to its end") != std::string::npos;
    if (c.how == "kill" && c.when == "end") continue;  // the kill and rank 0's output have no order
    EXPECT_EQ(ended, c.when == "end") << c.how << " " << c.when;
  }
}

// Two ranks, one of which is started with different flags, or with a file that it cannot write.
TEST_F(L17_Mpi, RanksThatAreStartedUnlikeEndAllWithASentence) {
  const std::string program = (build_folder() / "mpi/lessons/17_data_parallel").string(),
                    flags = " --comm=mpi --ranks=2 --steps=1 --comm-timeout=2";
  const auto unlike = [&](const std::string& one, const std::string& other) {
    return run(kProgram, "",
               "timeout 120 sh tests/tools/mpiexec.sh 1 " + one + " : -n 1 " + other + " 2>&1 #");
  };
  for (const char* flag : {"--seed=2", "--ranks=3", "--no-such-flag", "--comm=sim", "--help"}) {
    const Outcome o = unlike(program + flags, program + flags + " " + flag);
    EXPECT_NE(o.code, 0) << flag;
    EXPECT_NE(o.output.find("rank 1: its flags differ from those of rank 0"), std::string::npos)
        << flag << ": " << o.output;
  }
  const std::string here = path("here"), nowhere = path("nowhere");
  fs::create_directories(here);
  write("nowhere/build", "in the way of the folder of plots");
  const auto in = [&](const std::string& folder) {
    return "sh -c 'cd " + folder + " && exec " + program + flags + "'";
  };
  const Outcome o = unlike(in(here), in(nowhere));
  EXPECT_NE(o.code, 0);
  EXPECT_NE(o.output.find("rank 1: "), std::string::npos) << o.output;
}

// A launcher that sees the abort first would end without reading the message.
TEST_F(L17_Mpi, AProcessEndsOnceItsSentenceHasBeenRead) {
  const std::string command = "'" + (build_folder() / kProgram).string() +
                              "' --how=throw --when=start 2>&1; echo 'the launcher goes on'";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  pollfd there{fileno(pipe), POLLIN, 0};
  ASSERT_EQ(poll(&there, 1, 60'000), 1);
  usleep(300'000);
  char read_late[4096] = {};
  ASSERT_GT(::read(fileno(pipe), read_late, sizeof read_late - 1), 0);
  pclose(pipe);
  EXPECT_NE(std::string(read_late).find("rank 0: no luck"), std::string::npos) << read_late;
  EXPECT_EQ(std::string(read_late).find("the launcher goes on"), std::string::npos) << read_late;
}

// Every row's loss, as printed in the report's file.
std::vector<std::string> losses(const std::string& file) {
  std::ostringstream json;
  json << std::ifstream(file).rdbuf();
  const std::string text = json.str(), key = "\"loss_last\":";
  std::vector<std::string> all;
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
    all.push_back(text.substr(at, text.find(',', at) - at));
  return all;
}

TEST_F(L18_Mpi, LossesOfFourProcessesAreThoseOfFourSimulatedRanks) {
  const std::string in_one = path("sim.json"), by_mpi = path("mpi.json");
  const Outcome sim = run("lessons/18_zero", "--steps=4 --json=" + in_one),
                mpi = start(4, "mpi/lessons/18_zero", "--comm=mpi --ranks=4 --steps=4 --json=" + by_mpi);
  EXPECT_EQ(mpi.code, 0) << mpi.output;
  EXPECT_EQ(losses(by_mpi).size(), 7u);
  EXPECT_EQ(losses(by_mpi), losses(in_one));
}

// Each row's loss, from the report's file.
std::map<std::string, double> losses_of_rows(const std::string& file) {
  const nlohmann::json report = nlohmann::json::parse(std::ifstream(file));
  std::map<std::string, double> all;
  for (const auto& row : report["rows"]) all[row["name"]] = row["loss_last"];
  return all;
}

void expect_losses_as_simulated(const std::string& lesson, const std::string& folder, size_t rows) {
  const std::string in_one = folder + "/sim.json", by_mpi = folder + "/mpi.json",
                    flags = " --ranks=4 --steps=3 --json=";
  const Outcome sim = run("lessons/" + lesson, flags + in_one),
                mpi = L17_Mpi::start(4, "mpi/lessons/" + lesson, "--comm=mpi" + flags + by_mpi);
  EXPECT_EQ(sim.code, 0) << sim.output;
  EXPECT_EQ(mpi.code, 0) << mpi.output;
  const std::map<std::string, double> simulated = losses_of_rows(in_one), processes = losses_of_rows(by_mpi);
  EXPECT_EQ(processes.size(), rows);
  for (const auto& [name, loss] : processes) {
    ASSERT_TRUE(simulated.contains(name)) << name;
    EXPECT_EQ(loss, simulated.at(name)) << name;
  }
}
TEST_F(L19_Mpi, LossesOfFourProcessesAreThoseOfFourSimulatedRanks) {
  expect_losses_as_simulated("19_tensor_parallel", path("."), 6);
}
TEST_F(L20_Mpi, LossesOfFourProcessesAreThoseOfFourSimulatedRanks) {
  expect_losses_as_simulated("20_pipeline_parallel", path("."), 4);
}

// mpiexec may end before the processes that it has killed, and these may still be zombies (state Z).
bool ends_within(double seconds, int pid) {
  for (const double until = seconds_now() + seconds; seconds_now() < until;) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    if (!(stat >> number >> name >> state) || state == "Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// The third of four processes is killed at a random moment: all end.
void expect_end_of_all(const std::string& lesson, const std::string& folder) {
  const std::string program = (build_folder() / "mpi/lessons" / lesson).string();
  for (const int64_t after_ms : {50, 400, 1100, 2300}) {
    const std::string pids = folder + "/pids" + std::to_string(after_ms);
    const std::string each = "sh -c 'echo $$ >>" + pids + "; exec " + program +
                             " --comm=mpi --ranks=4 --steps=100000 --comm-timeout=5'";
    auto outcome = std::async(std::launch::async, [&] {
      return run(kProgram, "", "timeout 120 sh tests/tools/mpiexec.sh 4 " + each + " 2>&1 #");
    });
    std::vector<int> started;
    for (int i = 0; i < 3000 && started.size() < 4; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::ifstream file(pids);
      started.assign(std::istream_iterator<int>(file), std::istream_iterator<int>());
    }
    ASSERT_EQ(started.size(), 4u);
    std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
    ASSERT_EQ(::kill(started[2], SIGKILL), 0);
    const Outcome o = outcome.get();
    EXPECT_NE(o.code, 0) << after_ms;
    EXPECT_NE(o.code, 124) << "the processes ended only at the test's time limit; killed after " << after_ms
                           << " ms";
    for (const int pid : started)
      EXPECT_TRUE(ends_within(10, pid)) << pid << " still runs; killed after " << after_ms << " ms";
  }
}

TEST_F(L19_Mpi, AProcessThatIsKilledEndsAll) { expect_end_of_all("19_tensor_parallel", path(".")); }
TEST_F(L20_Mpi, AProcessThatIsKilledEndsAll) { expect_end_of_all("20_pipeline_parallel", path(".")); }

}  // namespace
}  // namespace gradus
