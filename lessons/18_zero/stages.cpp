#include "lessons/18_zero/stages.h"

#include <cmath>

#include "lessons/18_zero/step.h"
#include "src/core/larger.h"

namespace gradus {

// The runs of all ranks; if ranks are processes, the run of this rank.
static std::vector<ShardedRun> run(const RanksArgs& args, const TrainRank& train, const ZeroArgs& zero,
                                   const Stretch& stretch) {
  std::vector<ShardedRun> ranks(static_cast<size_t>(args.ranks));
  run_ranks(args, [&](Comm& comm) { ranks[size_t(comm.rank())] = train(comm, zero, stretch); });
  if (args.comm != "sim") return {ranks[size_t(this_rank(args))]};
  return ranks;
}

// Adds a row to the report, and its checks. If a rank differs from the prediction, its value is checked.
static void describe(const std::vector<ShardedRun>& ranks, const RanksArgs& args, const ParallelTask& task,
                     const ZeroArgs& zero, const std::string& name, const OneDevice& alone, Report& report) {
  const ShardedRun& mine = ranks[0];
  const int64_t states =
      predicted_bytes(task.model.precision, zero.stage, mine.parameters, mine.padded, args.ranks).allocated();
  const int64_t sends = predicted_sent(zero, mine.padded, args.ranks, 1);
  int64_t bytes = state_bytes(mine.between), sent = mine.sent;
  double different = 0;
  for (const ShardedRun& r : ranks) {
    if (state_bytes(r.between) > states) bytes = state_bytes(r.between);
    if (r.sent != sends) sent = r.sent;
    different += count_unlike(r, alone);
  }
  ReportRow& row = add_row(report, name, mine, task);
  row.extra = {{"model states, bytes", double(bytes)}, {"elements sent per rank", double(mine.sent)}};
  if (this_rank(args) == 0)  // the last ranks keep less: the padding has no optimizer states
    report.check_equal(name + ": bytes of model states between steps", bytes, states);
  report.check_equal(name + ": elements sent per rank", sent, sends);
  report.check_at_most(name + ": parameters that differ bitwise from the single-device run", different, 0);
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
      {"stage 3, prefetch", {.stage = 3, .unit = unit_per_block, .overlap = true}},
      {"SHARD_GRAD_OP", {.stage = 3, .unit = unit_per_block, .overlap = true, .keep_gathered = true}}};
  for (const auto& [name, zero] : variants)
    describe(run(args, train, zero, {0, task.steps}), args, task, zero, name, alone, report);
}

void resume(RanksArgs args, const ParallelTask& task, const TrainRank& train, const std::string& file,
            Report& report) {
  const ZeroArgs zero{.stage = 3, .unit = unit_per_block};
  args.ranks = 4;
  const ShardedRun whole = run(args, train, zero, {0, task.steps})[0];
  run(args, train, zero, {0, task.steps / 2, "", file});
  for (const int64_t ranks : {4, 2, 8}) {
    args.ranks = ranks;
    double worst = 0;
    for (const ShardedRun& rest : run(args, train, zero, {task.steps / 2, task.steps, file}))
      worst = larger(worst, off_by(rest.weights, whole.weights));
    report.check_at_most("saved by 4 ranks, resumed by " + std::to_string(ranks) + ": difference of weights",
                         worst, ranks == 4 ? 0 : 1e-4);
  }
}

}  // namespace gradus
