// Lesson 20, pipeline parallelism. Ranks share the layers of a model: each computes some of its blocks, and a
// batch goes through them in micro-batches. Which rank computes what, and when, is a schedule: data that is
// checked before anything runs. The last part combines the pipeline with data, tensor and context parallelism
// and ZeRO-1.
//
// With p stages and m micro-batches ranks wait for (p - 1) / (m + p - 1) of the time.
//
//   make lesson-20                                                          expected last line: PASS
//   make lesson-20 ARGS=--schedule=FILE                                     your own schedule, judged
//   make mpi-20 RANKS=4                                                     with ranks that are processes
#include <iostream>

#include "lessons/20_pipeline_parallel/plan.h"
#include "lessons/20_pipeline_parallel/setting.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/processes.h"
#include "src/parallel/sharded_file.h"
#include "src/train/lesson.h"
#include "src/train/text.h"

using namespace gradus;

static PipelineRun train(Comm& comm, const ParallelTask& task, const Loader& loader,
                         const PipelineSetting& set, const LayoutReference& alone) {
  const int64_t targets = task.batch * task.model.context;
  RankModel rank(comm, set.layout, task.model, even_cuts(task.model.layers, set.schedule.chunks));
  if (set.keep != Keep::All) rank.model.segments.assign(rank.model.blocks.size(), {1, set.keep});
  rank.initialize(task.seed);
  AdamW optimizer(rank.zero.shards);
  if (!set.load.empty()) load_sharded(set.load, comm, rank.zero.shards, optimizer);
  PipelineRun mine;
  for (int64_t step = 0; step < task.steps; ++step) {
    const double begin = comm.seconds();
    const TextBatch batch = read_shard(loader, task, step, 0, 1);
    rank.model.parameters.zero_grad();
    mine.losses.push_back(
        rank.run(set.schedule, rank.micro_batches(batch, set.schedule.micro_batches), targets));
    optimizer.step(task.learning_rate);
    mine.seconds.push_back(comm.seconds() - begin);
  }
  mine.peak = current().device.meter().at_peak();
  if (!set.save.empty()) save_sharded(set.save, comm, rank.zero.shards, optimizer);
  for (const Parameter& p : rank.model.parameters) {
    const std::vector<double>& whole = alone.weights.at(p.name);
    mine.unlike += to_host<double>(p.value) != (p.shard ? p.shard->of_values(whole) : whole);
  }
  return mine;
}

int main() {
  Context context("cpu", 3);
  ParallelTask task = parallel_task("cpu", 3, 3);
  task.batch = 8, task.model.layers = 8, task.model.channels = 32, task.model.heads = 8,
  task.model.context = 16;
  const Text text = load_text("", task.text_bytes, task.seed);
  const Loader loader(text.corpus, task.model.context, task.seed);
  for (int64_t c : {1, 2})
    for (int64_t p : {1, 2, 4, 8})
      for (int64_t d : {1, 2, 4, 8})
        for (int64_t t : {1, 2, 4, 8}) {
          const Layout layout{p, d, t, c};
          if (layout.ranks() != 8) continue;
          task.model.dropout = c == 1 ? 0.1 : 0;
          const int64_t m = std::min<int64_t>(4, task.batch / d);
          const LayoutReference alone = train_as(layout, loader, task, m);
          int64_t unlike = 0, losses = 0, off = 0;
          const Schedule schedule = one_forward_one_backward(p, m);
          const PlanSetting set{
              .model = task.model, .layout = layout, .sequences = task.batch / d / m, .micro_batches = m};
          const Plan plan = plan_of(set, schedule, measure_ranks(set));
          double seconds = 0;
          run_cluster({.ranks = 8, .seed = task.seed}, [&](Comm& comm) {
            const PipelineRun r = train(comm, task, loader, {layout, schedule}, alone);
            unlike += r.unlike, losses += r.losses != alone.losses;
            off += r.peak.allocated() != plan.peaks[size_t(comm.rank())];
            if (comm.rank() == 0) std::cout << r.peak.allocated() << " " << plan.peaks[0] << "\n";
            seconds = r.seconds.back();
          });
          std::cout << layout.text() << " unlike " << unlike << " losses " << losses << " off " << off << " "
                    << alone.losses.back() << " s " << seconds << std::endl;
        }
}
