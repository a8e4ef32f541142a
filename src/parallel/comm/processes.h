// Ranks that are processes: MPI's launcher starts this program several times (make mpi-18 RANKS=4). In
// programs that were built without MPI, these functions are errors (no_mpi.cpp).
#pragma once
#include "src/core/args.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

// Runs `body`, the whole program, as one of the processes that the launcher has started. Starts MPI before
// the flags are checked, and gives OpenMP this process's share of the cores unless OMP_NUM_THREADS is set. An
// exception in one process, or a wait of more than --comm-timeout seconds, ends all processes with a message.
// All must have the same flags; only rank 0 writes to std::cout. Returns the result of `body`. In programs
// that are built without MPI it only calls `body`.
int run_process(int argc, char** argv, const std::function<int()>& body);

struct Process {
  int64_t rank = 0, count = 1;
};
Process this_process();  // only within run_process()

// For tensors in host memory (cpu, emu).
std::unique_ptr<Comm> mpi_comm();
// For tensors on cuda: MPI connects the processes, NCCL carries the bytes. Only in builds with CUDA=1.
std::unique_ptr<Comm> nccl_comm();

// Declares --comm-timeout: run_process() reads it before `body` checks the flags.
inline double timeout_flag(Args& flags) {
  return flags.number("comm-timeout", 60, "seconds that a process waits for another", 0.1, 1e6);
}

struct RanksArgs : ClusterArgs {
  std::string comm = "sim";  // or mpi, nccl
};
// run_cluster; or, with mpi and nccl, `body` on this rank only: `ranks` must be the number of processes, and
// the network and the timeline are ignored.
ClusterRun run_ranks(const RanksArgs& args, const std::function<void(Comm&)>& body);
// The rank of this process; 0 for a simulated cluster, whose ranks are all in this process.
inline int64_t this_rank(const RanksArgs& args) { return args.comm == "sim" ? 0 : this_process().rank; }

}  // namespace gradus
