// What mpi_test.cpp starts as processes: `mpi_program WHAT` plays random programs, or goes wrong in one of
// the ways in which runs of many processes do.
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "src/dist/processes.h"
#include "tests/dist/play_program.h"

namespace gradus {
namespace {

void play_programs(Comm& comm) {
  for (uint64_t i = 0; i < 200; ++i) {
    Rng rng(23, i);
    const std::vector<int64_t> sizes =
        i % 20 == 0 ? std::vector<int64_t>{65'537, 131'075} : std::vector<int64_t>{0, 1, 2, 5, 7, 64, 255};
    const CaseMaker maker(rng, ProgramMaker(rng, comm.size(), sizes).make(1 + int64_t(rng.below(12))));
    std::vector<Traffic> traffic(maker.made_.before.size());
    play(comm, maker.made_, traffic);
  }
  check(!::testing::UnitTest::GetInstance()->Failed(), "bytes differ from the reference");
}

void go_wrong(Comm& comm, const std::string& how) {
  const Tensor x(current().device, {how == "mismatch" && comm.rank() == 2 ? 7 : 8}, DType::F32, Kind::Other,
                 "x");
  comm.barrier();
  if (how == "throw alone") fail("no luck");
  if (comm.rank() == 1) {
    if (how == "throw") fail("no luck");
    if (how == "kill") std::raise(SIGKILL);
    if (how == "leave") return;
    if (how == "hang") sleep(1000);
  }
  comm.all_reduce(x)->wait();
  if (how == "letter" && comm.rank() == 0) comm.send(x, 1)->wait();
  if (how == "letter" && comm.rank() == 1) comm.recv(x.narrow(0, 5), 0)->wait();
  comm.barrier();
}

}  // namespace
}  // namespace gradus

int main(int argc, char** argv) {
  using namespace gradus;
  ::testing::InitGoogleTest(&argc, argv);
  const std::string what = argc > 1 ? argv[1] : "programs";
  RanksArgs args;
  args.comm = "mpi", args.timeout = what == "hang" ? 2 : 60;
  args.ranks = this_process().count;
  run_ranks(args, [&](Comm& comm) {
    if (what == "programs")
      play_programs(comm);
    else
      go_wrong(comm, what);
    if (comm.rank() == 0) std::cout << "came to its end" << std::endl;
  });
}
