// The same training in all stages, and resumed with a different number of ranks.
#pragma once
#include <functional>

#include "src/parallel/shards.h"
#include "src/parallel/zero.h"

namespace gradus {

struct ShardedRun : RankRun {
  Usage between;                                 // between steps
  int64_t parameters = 0, padded = 0, sent = 0;  // elements of the model, Psi, and sent in the last step
};
struct Stretch {  // some steps of a run, from a saved file and to one
  int64_t from, to;
  std::string load = "", save = "";
};
using TrainRank = std::function<ShardedRun(Comm&, const ZeroArgs&, const Stretch&)>;

// Adds a row for each stage, and for stage 3 with different units; checks bytes, elements and weights.
void compare_stages(const RanksArgs& args, const ParallelTask& task, const OneDevice& alone,
                    const TrainRank& train, Report& report);
// Runs the first half of the steps on 4 ranks and saves it in `file`; resumes it on 4, 2 and 8 ranks.
void resume(RanksArgs args, const ParallelTask& task, const TrainRank& train, const std::string& file,
            Report& report);

}  // namespace gradus
