#include "src/parallel/plan.h"

#include <algorithm>

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

const TaskUse& RankUse::of(const Task& task) const {
  for (const TaskUse& u : tasks)
    if (u.task.pass == task.pass && u.task.chunk == task.chunk) return u;
  fail("plan: ", text_of(task, task.chunk), " was not measured");
}
int64_t RankUse::peak() const {
  int64_t most = 0;
  for (const TaskUse& u : tasks) most = std::max(most, u.before + u.most);
  return most;
}

// All forward passes of one micro-batch, then its backward passes.
static Schedule one_micro_batch(int64_t ranks, int64_t chunks) {
  Schedule s{chunks, 1, std::vector<std::vector<Task>>(size_t(ranks))};
  for (int64_t c = 0; c < chunks; ++c) s.of_rank[size_t(c % ranks)].push_back({Pass::Forward, 0, c});
  for (int64_t c = chunks; c-- > 0;) s.of_rank[size_t(c % ranks)].push_back({Pass::Backward, 0, c});
  return s;
}

static int64_t message_bytes(const PlanSetting& set) {
  const int64_t T =
      set.model.context / set.layout.context / (set.sequence == Sequence::Whole ? 1 : set.layout.tensor);
  return set.sequences * T * set.model.channels * size_of(set.model.precision.value);
}
static int64_t buffer_bytes(int64_t message) {
  return round_up(message, 512);
}  // size of the allocator's block
static RankUse use_of_rank(Comm& comm, const PlanSetting& set, const Schedule& schedule) {
  RankModel rank(comm, set.layout, set.model,
                 set.ends.empty() ? even_cuts(set.model.layers, schedule.chunks) : set.ends, set.sequence);
  if (set.keep != Keep::All) rank.model.segments.assign(rank.model.blocks.size(), {1, set.keep});
  AdamW optimizer(rank.zero.shards);
  const int64_t T = set.model.context, sequences = set.layout.data * set.sequences * schedule.micro_batches;
  const std::vector<int32_t> tokens(size_t(sequences * T));
  const TextBatch batch{sequences, T, tokens, tokens};
  RankUse use;
  for (const bool measured : {false, true}) {  // the first step allocates the states
    use.tasks.clear();
    rank.pipeline.uses = &use.tasks;
    rank.model.parameters.zero_grad();
    const double begin = comm.seconds();
    const std::vector<TextBatch> micro_batches = rank.micro_batches(batch, schedule.micro_batches);
    rank.run(schedule, micro_batches, sequences * T);
    optimizer.step(1e-3);
    if (!measured) continue;
    int64_t inputs = 0;  // with a buffer already when the first task began
    for (size_t i = 0; i < 2; ++i) inputs += schedule.input_of(use.tasks[i].task).has_value();
    use.between = use.tasks[0].before - inputs * buffer_bytes(message_bytes(set));
    use.step_seconds = comm.seconds() - begin;
  }
  return use;
}

std::vector<RankUse> measure_ranks(const PlanSetting& set, const Schedule& schedule) {
  ClusterArgs args{.ranks = set.layout.ranks(), .device = "meta", .network = set.network};
  args.computed = [&](int64_t, Context& c) {
    return set.machine.name.empty() ? 0 : predicted_seconds(c.device.meter(), set.machine);
  };
  std::vector<RankUse> uses(size_t(args.ranks));
  run_cluster(args, [&](Comm& comm) { uses[size_t(comm.rank())] = use_of_rank(comm, set, schedule); });
  return uses;
}
std::vector<RankUse> measure_ranks(const PlanSetting& set) {
  const int64_t p = set.layout.pipeline;
  return measure_ranks(set, one_micro_batch(p, p * set.chunks_per_rank));
}

int64_t peak_of(const Schedule& schedule, int64_t stage, const RankUse& use, int64_t message) {
  const std::vector<Task>& list = schedule.of_rank[size_t(stage)];
  const auto input = [&](size_t i) {
    return i < list.size() && schedule.input_of(list[i]) ? buffer_bytes(message) : 0;
  };
  int64_t now = use.between + input(0), peak = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    now += input(i + 1);  // it comes while this task is computed
    peak = std::max(peak, now + use.of(list[i]).most);
    now += use.of(list[i]).kept;
  }
  return peak;
}

int64_t Plan::largest_peak() const { return *std::max_element(peaks.begin(), peaks.end()); }

Plan plan_of(const PlanSetting& set, const Schedule& schedule, const std::vector<RankUse>& uses) {
  const int64_t p = set.layout.pipeline, each = set.layout.ranks() / p, message = message_bytes(set);
  std::vector<ChunkTimes> times;
  for (int64_t c = 0; c < schedule.chunks; ++c) {
    const RankUse& of = uses[size_t(c % p * each)];
    times.push_back({of.of({Pass::Forward, 0, c}).seconds, of.of({Pass::Backward, 0, c}).seconds});
  }
  std::vector<double> links;
  for (int64_t stage = 0; p > 1 && stage < p; ++stage)
    links.push_back(message_seconds(set.network, stage * each, (stage + 1) % p * each, double(message)));
  const Timeline pipeline = play(schedule, times, links),
                 one = play(one_micro_batch(p, schedule.chunks), times, links);
  check(pipeline.problem.empty(), "plan: ", pipeline.problem);
  double step = 0;
  for (const RankUse& u : uses) step = std::max(step, u.step_seconds);
  Plan plan{.peaks = {}, .seconds = pipeline.seconds + step - one.seconds, .bubble = pipeline.bubble};
  for (int64_t r = 0; r < set.layout.ranks(); ++r)
    plan.peaks.push_back(peak_of(schedule, r / each, uses[size_t(r)], message));
  return plan;
}

Plan plan_of(const PlanSetting& set) {
  return plan_of(set, interleaved(set.layout.pipeline, set.micro_batches, set.chunks_per_rank),
                 measure_ranks(set));
}

}  // namespace gradus
