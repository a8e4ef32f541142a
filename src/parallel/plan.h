// What a layout needs and how long a step takes at least, without running it: one micro-batch of each chunk
// is measured on the device meta, and the schedule puts the rest together.
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
  std::vector<int64_t> ends = {};            // of the chunks; empty: cut as if all blocks cost the same
  int64_t sequences = 1, micro_batches = 1;  // of a micro-batch; of them on each data rank
  Sequence sequence = Sequence::Whole;
  Keep keep = Keep::All;
  Machine machine = {};  // without a name: computing takes no time
  Network network = {};
};

// What one rank uses: bytes between the tasks of a step, and of each pass of each of its chunks; the sums of
// gradients and the update, after the last one, need no more than that. Seconds are by the machine.
struct RankUse {
  int64_t between = 0;
  std::vector<TaskUse> tasks;
  double step_seconds = 0;
  const TaskUse& of(const Task& task) const;
  int64_t peak() const;  // of the step that was measured
};
// Of the layout's step with one micro-batch; or with all those of a schedule.
std::vector<RankUse> measure_ranks(const PlanSetting& set);
std::vector<RankUse> measure_ranks(const PlanSetting& set, const Schedule& schedule);

struct Plan {
  // Bytes of each rank: exact while no tensor takes more than 1 MiB; the allocator gives a larger one up to 1
  // MiB more than it asked for, depending on what is free.
  std::vector<int64_t> peaks;
  double seconds = 0, bubble = 0;
  int64_t largest_peak() const;
};
Plan plan_of(const PlanSetting& set, const Schedule& schedule, const std::vector<RankUse>& uses);
// By the usual schedule: 1F1B, interleaved if there are several chunks per rank.
Plan plan_of(const PlanSetting& set);
// The peak of a rank of this stage. message: bytes of what is passed on.
int64_t peak_of(const Schedule& schedule, int64_t stage, const RankUse& use, int64_t message);

}  // namespace gradus
