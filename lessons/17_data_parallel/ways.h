// The ways to add up gradients, compared.
#pragma once
#include <functional>

#include "src/parallel/shards.h"

namespace gradus {

struct ParallelWay {
  std::string name;
  int64_t bucket_bytes = 0;  // 0: no buckets, each gradient by itself
  bool overlaps = false;
};
struct SummedRun : RankRun {
  Sent sent;          // in the last step
  int64_t numel = 0;  // of what is summed
};
using TrainOneWay = std::function<SummedRun(Comm&, const ParallelWay&)>;

// One way, on args.ranks ranks: a row of the report, and its checks.
void compare_way(const RanksArgs& args, const ParallelTask& task, const TrainOneWay& train,
                 const ParallelWay& way, const OneDevice& alone, Report& report);
// On one device, the gradients of a batch in parts, added up, train as the whole batch's do.
void check_parts(int64_t parts, const OneDevice& alone, const OneDevice& whole, Report& report);

}  // namespace gradus
