// The memory that a layout needs, and a lower bound of a step's time, without running it: one micro-batch of
// each chunk is measured on the device meta, and the rest follows from the schedule.
#pragma once
#include <string>
#include <vector>

#include "src/parallel/comm/network.h"
#include "src/parallel/layout.h"
#include "src/train/machine.h"

namespace gradus {

struct PlanSetting {
  TransformerConfig model = {};
  Layout layout = {};
  int64_t chunks_per_rank = 1;
  std::vector<int64_t> ends = {};            // of the chunks; empty: even_cuts
  int64_t sequences = 1, micro_batches = 1;  // per micro-batch; per data rank
  Sequence sequence = Sequence::Whole;
  Keep keep = Keep::All;
  Machine machine = {};  // no name: computing takes no time
  Network network = {};
};

// What one rank uses: bytes between the tasks of a step, and the use of each pass of each of its chunks. The
// sums of gradients and the update, after the last task, need no more bytes. `machine` determines the
// seconds.
struct RankUse {
  int64_t between = 0;
  std::vector<TaskUse> tasks;
  double step_seconds = 0;
  const TaskUse& of(const Task& task) const;
  int64_t peak() const;  // bytes, of the measured step
};
// Measures a step of the layout with one micro-batch, or with all micro-batches of a schedule.
std::vector<RankUse> measure_ranks(const PlanSetting& set);
std::vector<RankUse> measure_ranks(const PlanSetting& set, const Schedule& schedule);

struct Plan {
  // Bytes per rank: exact if no tensor takes more than 1 MiB; a larger tensor's block may be up to 1 MiB
  // larger than the tensor, depending on the allocator's free blocks.
  std::vector<int64_t> peaks;
  double seconds = 0, bubble = 0;
  int64_t largest_peak() const;
};
Plan plan_of(const PlanSetting& set, const Schedule& schedule, const std::vector<RankUse>& uses);
// With the usual schedule: 1F1B, interleaved if there are several chunks per rank.
Plan plan_of(const PlanSetting& set);
// The peak bytes of a rank of this stage. message: bytes of a tensor that stages pass on.
int64_t peak_of(const Schedule& schedule, int64_t stage, const RankUse& use, int64_t message);

}  // namespace gradus
