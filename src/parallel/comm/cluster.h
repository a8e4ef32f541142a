// A simulated cluster: N ranks in this process. Each rank is a fiber with its own Context: device, allocator,
// budget, random numbers and clock. One rank computes at a time, on all cores, so the others do not disturb
// its measured times. A collective moves real data; a formula gives its time on a network (network.h).
#pragma once
#include <functional>

#include "src/io/trace.h"
#include "src/parallel/comm/network.h"
#include "src/tensor/context.h"

namespace gradus {

struct ClusterArgs {
  int64_t ranks = 4;
  std::string device = "cpu";  // of every rank: cpu, emu or meta
  uint64_t seed = 1;
  int64_t memory_budget = 0;  // per rank, in bytes, including 256 KiB for its sums; 0: no limit
  Network network = {};       // default: communication takes no time
  // The seconds that a rank has computed so far; default: the measured time for which it ran.
  std::function<double(int64_t rank, Context&)> computed = {};
  std::function<void(int64_t rank, Context&)> made =
      {};                      // called for each new rank, with its context current
  bool keep_timeline = false;  // of outermost ranges and collectives; clocks begin at 0
};

struct ClusterRun {
  std::vector<double> seconds;  // each rank's clock at its end
  std::vector<Span> timeline;   // if it was kept
};

// Runs `body` on every rank, with the rank's Context current. Ranks take turns: a rank runs until it has to
// wait for other ranks, or begins communication while another rank's clock is behind. If a rank throws, the
// others are unwound where they wait (by an exception that is not a std::exception), and the exception is
// rethrown; an Error then begins with "rank 2: ". If all ranks wait for something that no rank will do, an
// Error says where each waits; if a rank has ended without a collective that others began, an Error names the
// collective. A destructor must not wait.
ClusterRun run_cluster(const ClusterArgs& args, const std::function<void(Comm&)>& body);

}  // namespace gradus
