// Ranks that are processes. This program is one of those that MPI's launcher has started (make mpi-18
// RANKS=4); programs that were built without MPI refuse with a sentence (no_mpi.cpp).
#pragma once
#include "src/dist/cluster.h"

namespace gradus {

struct Process {
  int64_t rank, count;
};
// Which one this is. The first call begins MPI, and gives OpenMP this process's share of the machine's cores,
// if OMP_NUM_THREADS does not say how many.
Process this_process();

// Ends all processes, with exit code 1; this one's sentence is on stderr.
[[noreturn]] void end_all_processes(const std::string& sentence);

// For tensors in host memory (cpu, emu); a rank that waits longer than `timeout` seconds for another throws.
std::unique_ptr<Comm> mpi_comm(double timeout);
// For tensors on cuda: MPI tells the processes of each other, NCCL carries the bytes. In builds with CUDA=1.
std::unique_ptr<Comm> nccl_comm(double timeout);

struct RanksArgs : ClusterArgs {
  std::string comm = "sim";  // or mpi, nccl
  double timeout = 60;       // seconds, for processes
};
// run_cluster, or, with mpi and nccl, `body` on this rank alone: `ranks` must be the number of processes, and
// neither the network nor the timeline counts. A rank that throws there ends them all.
ClusterRun run_ranks(const RanksArgs& args, const std::function<void(Comm&)>& body);
// That this process is; 0 for a simulated cluster, which is all in one.
inline int64_t this_rank(const RanksArgs& args) { return args.comm == "sim" ? 0 : this_process().rank; }

}  // namespace gradus
