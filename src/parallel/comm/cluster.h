// A simulated cluster: N ranks in this process, each a fiber with a Context of its own: its device,
// allocator, budget, random numbers and clock. One computes at a time, on all cores, so what is measured is
// undisturbed. A collective moves real data; what it would take on a network, its formula says (network.h).
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
  int64_t memory_budget = 0;  // of each rank, in bytes, with the 256 KiB that its sums need; 0: none
  Network network = {};       // by default one that takes no time
  // What a rank has computed so far, in seconds; by default the time for which it ran, as measured.
  std::function<double(int64_t rank, Context&)> computed = {};
  std::function<void(int64_t rank, Context&)> made =
      {};                      // called when a rank has its context, which is current then
  bool keep_timeline = false;  // what is computed, by its outermost range, and collectives; clocks begin at 0
};

struct ClusterRun {
  std::vector<double> seconds;  // each rank's clock at its end
  std::vector<Span> timeline;   // if it was kept
};

// Runs `body` on every rank, with the rank's Context current. Ranks take turns: one runs until it waits
// for what is not there, or begins something while another one is behind on the clock. What a rank throws
// ends the others where they wait (they are unwound, by something that is no std::exception) and is thrown
// again: an Error then begins with "rank 2: ". If all wait for what nobody will do, the Error says where each
// waits; if one has ended without a collective that others began, which. A destructor must not wait.
ClusterRun run_cluster(const ClusterArgs& args, const std::function<void(Comm&)>& body);

}  // namespace gradus
