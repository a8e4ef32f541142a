#include "lessons/18_zero/by_hand.h"

#include "lessons/18_zero/step.h"
#include "src/core/table.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

void shards_by_hand(std::ostream& out) {
  constexpr int64_t kRanks = 4, kNumel = 8, kShown = 1;
  out << "8 parameters on 4 ranks, 2 bytes a weight, 2 a gradient, 12 a master copy and AdamW's states: "
         "which elements rank 1 keeps\n\n";
  Table table({"stage", "weights", "gradients", "states", "bytes of rank 1", "of all ranks"});
  for (const int stage : {0, 1, 2, 3}) {
    Part part{0, kNumel};
    int64_t mine = 0, all = 0;
    run_cluster({.ranks = kRanks, .device = "meta"}, [&](Comm& comm) {
      Parameters parameters(Allocate::Later);
      parameters.add("w", {kNumel}, precision_recipe("zero"));
      Zero zero(comm, parameters, {.stage = stage});
      const AdamW optimizer(zero.shards);
      const int64_t bytes = state_bytes(current().device.meter().now());
      all += bytes;
      if (comm.rank() != kShown) return;
      mine = bytes;
      if (const auto& shard = zero.shards.begin()->shard) part = {shard->first, shard->count};
    });
    const std::string whole = "0 to 7",
                      own = std::to_string(part.begin) + " to " + std::to_string(part.begin + part.count - 1);
    table.row({std::to_string(stage), stage >= 3 ? own : whole, stage >= 2 ? own : whole, own,
               std::to_string(mine), std::to_string(all)});
  }
  out << table;
}

}  // namespace gradus
