// Lesson 20, pipeline parallelism. Each rank has some transformer blocks of the model, and the batch goes
// through the ranks in micro-batches. The schedule says which rank computes which pass, and in which order.
// It is data, so it is checked before any rank runs. The runs of `layout_runs` combine it with data, tensor
// and context parallelism and ZeRO-1.
//
// With p stages and m micro-batches each rank waits for (p - 1) / (m + p - 1) of the time.
//
//   make lesson-20                                                  expected last line: PASS
//   make lesson-20 ARGS=--schedule=FILE                             judge a schedule of your own
//   make lesson-20 ARGS="--model=gpt2-medium --ranks=16"            the layouts of a model on 16 devices
//   make mpi-20 RANKS=4                                             with ranks that are processes
#include <iostream>

#include "lessons/20_pipeline_parallel/choices.h"
#include "lessons/20_pipeline_parallel/runs.h"
#include "lessons/20_pipeline_parallel/schedules.h"
#include "src/core/named.h"
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

// Pipelines of 2 and 4 ranks.
static void pipeline_runs(const RanksArgs& args, ParallelTask task, const Loader& loader,
                          const LayoutRuns::Train& train, Report& report) {
  LayoutRuns runs(args, task, train, report);
  constexpr int64_t m = 8;
  for (const int64_t p : args.comm == "sim" ? std::vector<int64_t>{2, 4} : std::vector{args.ranks}) {
    if (p > task.model.layers) continue;
    const Layout layout{.pipeline = p};
    const LayoutReference alone = train_as(layout, loader, task, m);
    const std::string on = std::to_string(p) + " ranks, ";
    runs.with(on + "GPipe", {layout, gpipe(p, m)}, alone, true);
    runs.with(on + "1F1B", {layout, one_forward_one_backward(p, m)}, alone, true);
    if (2 * p <= task.model.layers && m % p == 0)
      runs.with(on + "interleaved", {layout, interleaved(p, m, 2)}, alone, true);
    runs.with(on + "1F1B, recomputed", {layout, one_forward_one_backward(p, m), Keep::Input}, alone, true);
  }
  runs.report("pipelines: ");
}

static int lesson_20(int argc, char** argv) {
  Lesson lesson(argc, argv, "20_pipeline_parallel",
                "pipeline parallelism: each rank has some blocks of the model", 20);
  RanksArgs args = ranks_flags(lesson.args, 512, 8);
  const std::string schedule = lesson.args.text(
      "schedule", "", "judge only: the schedule in this file, one line per rank (F0 F1 B0 B1)");
  const std::string file = lesson.plot("20_layout.safetensors");
  WhatIf what_if{
      .model = lesson.args.text("model", "",
                                "predict only: the layouts of this model (gpt2-xl, ...) on --ranks devices"),
      .machine = lesson.args.choice("machine", "A100", "the device of each rank, for --model",
                                    names_of(published_machines()))};
  const int64_t batch = lesson.args.integer("batch", 64, "sequences per step, for --model", 1, 4096);
  lesson.done({}, {lesson.plot("20_schedules.svg"), file});
  check(schedule.empty() || what_if.model.empty(),
        "--schedule and --model cannot be combined: use one of them");
  if (!what_if.model.empty()) return what_if.ranks = args.ranks, layouts_table(what_if, batch), 0;
  if (lesson.print == "example") return schedules_by_hand(std::cout), 0;
  if (!schedule.empty()) return judge_schedule(schedule);
  if (this_rank(args) > 0) lesson.write_nothing();  // rank 0 writes
  LessonContext context(lesson, args.comm == "sim" && lesson.device == "auto" ? "cpu" : lesson.device,
                        lesson.memory);
  ParallelTask task = parallel_task(context.device.name(), lesson.steps, lesson.seed);
  task.batch = 8;
  task.model.layers = 8, task.model.heads = 8, task.model.channels = 32, task.model.context = 16;
  if (std::string(context.device.name()) == "emu")
    task.model.layers = 2, task.model.channels = 16, task.model.context = 8;
  if (task.model.layers == 2 && args.comm == "sim") args.ranks = std::min<int64_t>(args.ranks, 2);
  task.model.dropout = 0.1;
  const Text text = load_text("", task.text_bytes, task.seed);
  const Loader loader(text.corpus, task.model.context, task.seed);
  Report report = lesson.report();
  report.config(task.model, task.batch);
  report.config("ranks", args.ranks);
  args.device = context.device.name(), args.seed = lesson.seed, args.memory_budget = lesson.memory;
  args.made = lesson.traced_ranks();
  if (args.comm == "sim") schedules_table(lesson.plot("20_schedules.svg"), report);
  const LayoutRuns::Train train_rank = [&](Comm& comm, const ParallelTask& t, const PipelineSetting& set,
                                           const LayoutReference& alone) {
    return train(comm, t, loader, set, alone);
  };
  pipeline_runs(args, task, loader, train_rank, report);
  layout_runs(args, task, loader, train_rank, file, report);
  if (args.comm != "sim") return lesson.finish(report);
  published_table(report);
  cuts_table(report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return run_process(argc, argv, [&] { return lesson_20(argc, argv); }); });
}
