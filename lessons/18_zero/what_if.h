// Without a cluster: does a model fit on so many machines, and how long does a step take at least?
#pragma once
#include <string>
#include <vector>

#include "src/parallel/comm/network.h"
#include "src/train/report.h"

namespace gradus {

struct WhatIf {
  std::string model = "gpt2-xl", machine = "A100",
              network = "auto";       // auto: nodes of 8 by the machine's own link
  int64_t ranks = 64, sequences = 4;  // sequences of its whole context on each rank
};
Network network_of(const WhatIf& w);
// Stages 0 to 3 of one, in 2 + 2 + 12 bytes a parameter, a unit a block, gathered ahead: a rank's peak,
// whether it fits the machine's memory, and the time that its kernels and the network need at least.
void what_if_table(const WhatIf& w);
// The seconds of a step on each of networks_of_a100(), by stage; of one rank alone, too.
struct StageTimes {
  std::string network;
  double alone, stage_1, stage_2, stage_3, kept;  // kept: SHARD_GRAD_OP
};
std::vector<StageTimes> stage_times(const WhatIf& w);
void times_table(const WhatIf& w, const std::vector<StageTimes>& times, Report& report);

}  // namespace gradus
