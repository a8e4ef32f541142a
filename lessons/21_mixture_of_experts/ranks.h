// Expert parallelism: the mixture on 1, 2 and 4 ranks, each with its shard of the experts.
#pragma once
#include "src/parallel/shards.h"

namespace gradus {

struct ExpertsRun {
  double loss = 0;                             // of the first step, summed over the ranks
  std::vector<std::vector<double>> gradients;  // of the first step, complete, per parameter
  int64_t sent = 0;                            // elements that rank 0 sends to experts and back
  Usage peak;                                  // of rank 0
};
// The forward and backward pass of one step on args.ranks simulated ranks.
ExpertsRun step_on_ranks(const ClusterArgs& args, const TransformerConfig& c, const Loader& loader,
                         int64_t batch);

// The elements that a rank sends in the all-to-alls of one step: per block two in the forward pass and two in
// the backward pass.
int64_t elements_to_experts(const TransformerConfig& c, int64_t batch, int64_t ranks);

// The largest differences of losses and gradients over the runs, and the sum of differences of elements sent.
struct RanksOff {
  double losses, gradients;
  int64_t sent;
};
void check_runs_on_ranks(const RanksOff& off, Report& report);
// Prints table (d), and checks losses, gradients and elements sent.
void ranks_table(ClusterArgs args, const TransformerConfig& c, const Loader& loader, int64_t batch,
                 Report& report);

}  // namespace gradus
