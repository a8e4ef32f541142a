// Compares the ways to sum gradients over ranks.
#pragma once
#include <functional>

#include "src/parallel/shards.h"

namespace gradus {

struct ParallelWay {
  std::string name;
  int64_t bucket_bytes = 0;  // 0: no buckets, one all-reduce per gradient
  bool overlaps = false;
};
struct SummedRun : RankRun {
  Sent sent;          // in the last step
  int64_t numel = 0;  // elements that are summed, with the padding of the buckets
};
using TrainOneWay = std::function<SummedRun(Comm&, const ParallelWay&)>;

// Trains in one way on args.ranks ranks; adds a row to the report, and the checks of this way.
void compare_way(const RanksArgs& args, const ParallelTask& task, const TrainOneWay& train,
                 const ParallelWay& way, const OneDevice& alone, Report& report);
// On a single device: the sum of the gradients of all shards trains like the gradient of the whole batch.
void check_shards(int64_t shards, const OneDevice& alone, const OneDevice& whole, Report& report);

}  // namespace gradus
