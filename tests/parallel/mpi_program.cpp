// The program that mpi_test.cpp starts as processes: it plays random programs, or fails in one of the ways,
// and at one of the times, in which runs of many processes fail.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <numeric>

#include "src/parallel/comm/processes.h"
#include "src/parallel/sharded_file.h"
#include "tests/parallel/exchanges.h"
#include "tests/parallel/play_program.h"

namespace gradus {
namespace {

void play_programs(Comm& comm) {
  for (uint64_t i = 0; i < 400; ++i) {
    Rng rng(23, i);
    const std::vector<int64_t> sizes =
        i % 20 < 2 ? std::vector<int64_t>{65'537, 131'075} : std::vector<int64_t>{0, 1, 2, 5, 7, 64, 255};
    const int64_t splits = i % 2 == 0 ? 0 : 2 + int64_t(rng.below(3));
    const CaseMaker maker(
        rng, ProgramMaker(rng, comm.size(), sizes, true, splits).make(1 + int64_t(rng.below(12))));
    std::vector<Sent> traffic(maker.made_.before.size());
    play(comm, maker.made_, traffic);
  }
  for (uint64_t i = 0; i < 20; ++i) {
    Rng rng(24, i);
    expect_all_to_all(comm, random_counts(rng, comm.size()));
    expect_exchange(comm);
    const auto part = comm.split("two", comm.rank() % 2);
    expect_all_to_all(*part, random_counts(rng, part->size()));
    expect_exchange(*part);
    expect_any_order(comm, i);
  }
  {  // A group may end before its messages are received: here, after as long as MPI needs.
    const Tensor x = bytes_on_device(std::vector<uint8_t>(3'000'000, 7));
    const Tensor y(current().device, {3'000'000}, DType::U8, Kind::Other, "y");
    if (comm.size() > 1) {
      auto part = comm.split("ends early", 0), last = comm.split("ends late", 0);
      if (comm.rank() == 0) {
        part->send(x, 1)->wait();
        part.reset();
        const std::vector<std::vector<char>> other(8, std::vector<char>(3'000'000, 1));  // reuses the memory
      }
      comm.barrier();
      if (comm.rank() == 1)
        part->recv(y, 0)->wait(), expect_values(y, std::vector<uint8_t>(3'000'000, 7), "y");
    }
  }
  {  // A file of all processes; each has two columns.
    const std::string path = testing::TempDir() + "of_processes.safetensors";
    const Shape whole{3, 2 * comm.size()};
    Parameters own;
    Parameter& p = own.add("w", {3, 2}, {});
    p.shard = Shard::of_columns(whole, 2 * comm.rank(), 2);
    std::vector<double> all(size_t(whole.numel()));
    std::iota(all.begin(), all.end(), 1.0);
    p.assign(p.shard->of_values(all));
    Sgd optimizer(own, {.momentum = 0.5f});
    save_sharded(path, comm, own, optimizer);
    p.assign(std::vector<double>(6, 0));
    load_sharded(path, comm, own, optimizer);
    EXPECT_EQ(to_host<double>(p.value), p.shard->of_values(all));
    comm.barrier();
    if (comm.rank() == 0) std::remove(path.c_str());
  }
  check(!::testing::UnitTest::GetInstance()->Failed(), "bytes differ from the reference");
}

// Rank 1, or the only rank.
void go_wrong(int64_t rank, const std::string& how) {
  if (rank != (this_process().count > 1)) return;
  if (how == "throw") fail("no luck");
  if (how == "kill") std::raise(SIGKILL);
  if (how == "stop") std::raise(SIGSTOP);
  if (how == "exit") std::exit(3);
}

void go_wrong_in(Comm& comm, const std::string& how) {
  const Tensor x(current().device, {how == "mismatch" && comm.rank() == 2 ? 7 : 8}, DType::F32, Kind::Other,
                 "x");
  comm.barrier();
  go_wrong(comm.rank(), how);
  if (how == "leave" && comm.rank() == 1) return;
  if (how == "other group") comm.split(comm.rank() == 1 ? "odds" : "pairs", 0);
  if (how == "mismatch in a group") {
    const auto part = comm.split("pairs", comm.rank() % 2);
    part->all_reduce(x.narrow(0, comm.rank() == 3 ? 7 : 8))->wait();
  }
  if (how == "throw within") {  // a collective that rank 0 has begun and does not pass on
    const Tensor y(current().device, {8}, DType::F32, Kind::Other, "y");
    const auto work = comm.broadcast(x, 3);
    if (comm.rank() == 0) usleep(500'000);
    for (int64_t i = 0; i < 100 && (comm.rank() == 1 || comm.rank() == 2); ++i)
      comm.exchange({{y, 3 - comm.rank()}}, {{y, 3 - comm.rank()}})->wait();
    go_wrong(comm.rank(), "throw");
  }
  if (how == "group ends") {
    std::unique_ptr<Work> work;
    work = comm.split("pairs", 0)->all_reduce(x);
    comm.barrier();
  }
  comm.all_reduce(x)->wait();
  if (how == "letter" && comm.rank() == 0) comm.send(x, 1)->wait();
  if (how == "letter" && comm.rank() == 1) comm.recv(x.narrow(0, 5), 0)->wait();
  if (how == "kind of letter" && comm.rank() == 0) comm.send(x, 1)->wait();
  if (how == "kind of letter" && comm.rank() == 1)
    comm.recv(Tensor(current().device, {8}, DType::I32, Kind::Other, "y"), 0)->wait();
  comm.barrier();
}

}  // namespace
}  // namespace gradus

int main(int argc, char** argv) {
  using namespace gradus;
  ::testing::InitGoogleTest(&argc, argv);
  return run_process(argc, argv, [&] {
    Args flags(argc, argv, "mpi_program", "plays random programs, or goes wrong");
    const std::string how = flags.text("how", "programs", "what goes wrong"),
                      when = flags.text("when", "", "start, loop, between or end");
    timeout_flag(flags);
    flags.done();
    RanksArgs args;
    args.comm = "mpi", args.ranks = this_process().count;
    const auto at = [&](const char* time) { go_wrong(this_process().rank, when == time ? how : ""); };
    at("start");
    run_ranks(args, [&](Comm& comm) {
      if (how == "programs")
        play_programs(comm);
      else
        go_wrong_in(comm, when == "loop" ? how : "");
    });
    at("between");
    run_ranks(args, [&](Comm& comm) { comm.barrier(); });
    std::cout << "came to its end" << std::endl;
    at("end");
    return 0;
  });
}
