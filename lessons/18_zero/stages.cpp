#include "lessons/18_zero/stages.h"

#include <cmath>

#include "lessons/18_zero/step.h"

namespace gradus {

static ShardedRun run(const RanksArgs& args, const TrainRank& train, const ZeroArgs& zero,
                      const Stretch& stretch) {
  std::vector<ShardedRun> ranks(static_cast<size_t>(args.ranks));
  run_ranks(args, [&](Comm& comm) { ranks[size_t(comm.rank())] = train(comm, zero, stretch); });
  return ranks[size_t(this_rank(args))];
}

// A row of the report, and its checks.
static void describe(const ShardedRun& mine, const RanksArgs& args, const ParallelTask& task,
                     const ZeroArgs& zero, const std::string& name, const OneDevice& alone, Report& report) {
  const Usage predicted =
      predicted_bytes(task.model.precision, zero.stage, mine.parameters, mine.padded, args.ranks);
  ReportRow& row = add_row(report, name, mine, task);
  row.predicted_bytes = predicted.allocated();
  row.extra = {{"sent", double(mine.sent)}};
  if (this_rank(args) == 0)  // the last ranks have less: no states for the padding
    report.check_equal(name + ": bytes of states between steps", state_bytes(mine.between),
                       predicted.allocated());
  report.check_equal(name + ": elements sent by a rank", mine.sent,
                     predicted_sent(zero, mine.padded, args.ranks, 1));
  report.check_at_most(name + ": parameters unlike one device's", count_unlike(mine, alone), 0);
}

void compare_stages(const RanksArgs& args, const ParallelTask& task, const OneDevice& alone,
                    const TrainRank& train, Report& report) {
  const struct {
    const char* name;
    ZeroArgs zero;
  } variants[] = {
      {"stage 0", {.stage = 0, .unit = unit_per_block}},
      {"stage 1", {.stage = 1, .unit = unit_per_block}},
      {"stage 2", {.stage = 2, .unit = unit_per_block}},
      {"stage 3", {.stage = 3, .unit = unit_per_block}},
      {"stage 3, one unit", {.stage = 3}},
      {"stage 3, ahead", {.stage = 3, .unit = unit_per_block, .overlap = true}},
      {"SHARD_GRAD_OP", {.stage = 3, .unit = unit_per_block, .overlap = true, .keep_gathered = true}}};
  for (const auto& [name, zero] : variants)
    describe(run(args, train, zero, {0, task.steps}), args, task, zero, name, alone, report);
}

void resume(RanksArgs args, const ParallelTask& task, const TrainRank& train, const std::string& file,
            Report& report) {
  const ZeroArgs zero{.stage = 3, .unit = unit_per_block};
  args.ranks = 4;
  const ShardedRun whole = run(args, train, zero, {0, task.steps});
  run(args, train, zero, {0, task.steps / 2, "", file});
  for (const int64_t ranks : {4, 2, 8}) {
    args.ranks = ranks;
    const ShardedRun rest = run(args, train, zero, {task.steps / 2, task.steps, file});
    double worst = 0;
    for (size_t i = 0; i < whole.weights.size(); ++i)
      for (size_t k = 0; k < whole.weights[i].size(); ++k)
        worst = std::max(worst, std::abs(rest.weights[i][k] - whole.weights[i][k]));
    report.check_at_most("saved by 4 ranks, resumed by " + std::to_string(ranks) + ": weights off by", worst,
                         ranks == 4 ? 0 : 1e-4);
  }
}

}  // namespace gradus
