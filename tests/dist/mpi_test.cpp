// Ranks that are processes: the same bytes as the simulated ones, and an end when one of them goes wrong.
#include "src/core/timing.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {

const char* kProgram = "mpi/tests/mpi_program";

class L17_Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(build_folder() / kProgram))
      GTEST_SKIP() << "no MPI on this machine: programs with ranks that are processes were not built";
  }
  static Outcome start(int64_t ranks, const std::string& program, const std::string& args) {
    return run(program, args, "timeout 120 sh tests/tools/mpiexec.sh " + std::to_string(ranks));
  }
};

TEST_F(L17_Mpi, RandomProgramsGiveTheReferencesBytes) {
  for (const int64_t ranks : {1, 2, 4}) {
    const Outcome o = start(ranks, kProgram, "programs");
    EXPECT_EQ(o.code, 0) << ranks << " ranks: " << o.output;
    EXPECT_NE(o.output.find("came to its end"), std::string::npos);
  }
}

TEST_F(L17_Mpi, WhatGoesWrongOnOneRankEndsAllWithItsSentence) {
  const struct {
    const char *how, *sentence;
  } cases[] = {
      {"throw", "rank 1: no luck"},
      {"mismatch", "is all_reduce of 7 fp32"},
      {"hang", "all_reduce of 8 fp32: no answer for 2 s (--comm-timeout)"},
      {"letter", "rank 1: recv of 5 fp32 from rank 0: what was sent are 8 fp32"},
      {"kill", ""},  // the launcher's words
      {"leave", "that of rank 1 is barrier"},
  };
  for (const auto& c : cases) {
    const double begin = seconds_now();
    const Outcome o = start(4, kProgram, c.how);
    EXPECT_LT(seconds_now() - begin, 10) << c.how;
    EXPECT_NE(o.code, 0) << c.how << ": " << o.output;
    EXPECT_NE(o.output.find(c.sentence), std::string::npos) << c.how << ": " << o.output;
    EXPECT_EQ(o.output.find("came to its end"), std::string::npos) << c.how;
  }
}

}  // namespace
}  // namespace gradus
