// The mixture on 1, 2 and 4 ranks, with its experts shared out.
#pragma once
#include "src/parallel/shards.h"

namespace gradus {

struct ExpertsRun {
  double loss = 0;                             // of the first step, of all ranks
  std::vector<std::vector<double>> gradients;  // of the first step, whole, of every parameter
  int64_t sent = 0;                            // elements that a rank sends to experts and back
  Usage peak;
};
// One step's passes on simulated ranks, or, with 1, on one.
ExpertsRun step_on_ranks(const ClusterArgs& args, const TransformerConfig& c, const Loader& loader,
                         int64_t batch);

// What a rank sends in the all-to-alls of one step, forward and backward, each twice per block.
int64_t elements_to_experts(const TransformerConfig& c, int64_t batch, int64_t ranks);

// Table (d).
void ranks_table(ClusterArgs args, const TransformerConfig& c, const Loader& loader, int64_t batch,
                 Report& report);

}  // namespace gradus
