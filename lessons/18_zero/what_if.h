// Without a cluster: does a model fit on these machines, and what is the lower bound of a step's time?
#pragma once
#include <string>
#include <vector>

#include "src/parallel/comm/network.h"
#include "src/train/report.h"

namespace gradus {

struct WhatIf {
  std::string model = "gpt2-xl", machine = "A100",
              network = "auto";       // auto: nodes of 8, with the machine's own link inside a node
  int64_t ranks = 64, sequences = 4;  // sequences per rank, each as long as the model's context
};
Network network_of(const WhatIf& w);
// Stages 0 to 3 of a model with 2 + 2 + 12 bytes per parameter, a unit per transformer block, prefetch: the
// peak of a rank, whether it fits into the machine's memory, and the lower bound of the step's time.
void what_if_table(const WhatIf& w);
// Lower bounds of the seconds of a step on each of networks_of_a100(), and of one rank without network.
struct StageTimes {
  std::string network;
  double alone, stage_1, stage_2, stage_3, kept;  // kept: SHARD_GRAD_OP
};
std::vector<StageTimes> stage_times(const WhatIf& w);
void times_table(const WhatIf& w, const std::vector<StageTimes>& times, Report& report);

}  // namespace gradus
