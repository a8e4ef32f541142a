// The same training in all stages, and from one number of ranks to another.
#pragma once
#include <functional>

#include "src/parallel/shards.h"
#include "src/parallel/zero.h"

namespace gradus {

struct ShardedRun : RankRun {
  Usage between;                                 // steps
  int64_t parameters = 0, padded = 0, sent = 0;  // elements: of the model, Psi, and sent in the last step
};
struct Stretch {  // of a run: from one step to another, from and to a file
  int64_t from, to;
  std::string load = "", save = "";
};
using TrainRank = std::function<ShardedRun(Comm&, const ZeroArgs&, const Stretch&)>;

// A row for each stage, and for stage 3 with other units; bytes, elements and weights are checked.
void compare_stages(const RanksArgs& args, const ParallelTask& task, const OneDevice& alone,
                    const TrainRank& train, Report& report);
// Half of a run on 4 ranks, saved in `file`; the other half on as many, on 2, on 8.
void resume(RanksArgs args, const ParallelTask& task, const TrainRank& train, const std::string& file,
            Report& report);

}  // namespace gradus
