// Ranks that are processes. This program is one of those that MPI's launcher has started (make mpi-18
// RANKS=4); programs that were built without MPI refuse with a sentence (no_mpi.cpp).
#pragma once
#include "src/core/args.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

// A program's whole run as one of the processes that the launcher has started. Begins MPI, before flags are
// judged, and gives OpenMP this process's share of the cores, if OMP_NUM_THREADS does not say how many. What
// ends one process, an exception or a wait of more than --comm-timeout seconds for another, ends all, with a
// sentence. All must have been started with the same flags; rank 0 alone writes to std::cout. Returns what
// `body` does. In programs that are built without MPI it does nothing else.
int run_process(int argc, char** argv, const std::function<int()>& body);

struct Process {
  int64_t rank = 0, count = 1;
};
Process this_process();  // which one this is, in run_process()

// For tensors in host memory (cpu, emu).
std::unique_ptr<Comm> mpi_comm();
// For tensors on cuda: MPI tells the processes of each other, NCCL carries the bytes. In builds with CUDA=1.
std::unique_ptr<Comm> nccl_comm();

// Declares --comm-timeout: run_process() reads it before `body` judges the flags.
inline double timeout_flag(Args& flags) {
  return flags.number("comm-timeout", 60, "seconds that a process waits for another", 0.1, 1e6);
}

struct RanksArgs : ClusterArgs {
  std::string comm = "sim";  // or mpi, nccl
};
// run_cluster, or, with mpi and nccl, `body` on this rank alone: `ranks` must be the number of processes, and
// neither the network nor the timeline counts.
ClusterRun run_ranks(const RanksArgs& args, const std::function<void(Comm&)>& body);
// That this process is; 0 for a simulated cluster, which is all in one.
inline int64_t this_rank(const RanksArgs& args) { return args.comm == "sim" ? 0 : this_process().rank; }

}  // namespace gradus
