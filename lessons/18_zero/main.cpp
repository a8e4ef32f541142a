// Lesson 18, ZeRO. In data parallelism every rank keeps the same 16 bytes per parameter. ZeRO shards them
// over the ranks: the optimizer states (stage 1), the gradients as well (stage 2), the weights as well (stage
// 3). The ranks send each other the shards that a rank needs and does not own.
//
// Bytes per parameter: 4 + 12/N, 2 + 14/N, 16/N. Elements sent: 2, k + 1, 3 k times Psi (N-1)/N.
//
//   make lesson-18                                                  expected last line: PASS
//   make lesson-18 ARGS="--model=gpt2-xl --ranks=64 --machine=V100"  does it fit, how fast is a step?
//   make mpi-18 RANKS=4                                             with ranks that are processes
#include <iostream>

#include "lessons/18_zero/by_hand.h"
#include "lessons/18_zero/memory.h"
#include "lessons/18_zero/stages.h"
#include "lessons/18_zero/units.h"
#include "lessons/18_zero/what_if.h"
#include "src/core/named.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/processes.h"
#include "src/parallel/sharded_file.h"
#include "src/parallel/shards.h"
#include "src/train/lesson.h"
#include "src/train/text.h"

using namespace gradus;

constexpr int64_t kSteps = 24;

static ShardedRun train(Comm& comm, const ParallelTask& task, const Loader& loader, const ZeroArgs& args,
                        const Stretch& stretch) {
  Transformer model(task.model, Allocate::Later);
  Zero zero(comm, model.parameters, args);
  model.initialize(task.seed, [&](Parameter& p, const auto& values) { zero.assign(p, values); });
  AdamW optimizer(zero.shards);
  if (!stretch.load.empty()) load_sharded(stretch.load, comm, zero.shards, optimizer);
  ShardedRun mine;
  for (int64_t step = stretch.from; step < stretch.to; ++step) {
    const double begin = comm.seconds();
    const Sent before = comm.sent();
    const TextBatch batch = read_shard(loader, task, step, comm.rank(), comm.size());
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = share_of_loss(model, task, batch);
    zero.end_forward();
    tape.backward(loss);
    zero.end_backward();
    optimizer.step(task.learning_rate);
    mine.sent = comm.sent().elements - before.elements;
    mine.loss = item(loss);  // the rank's share of the mean loss
    mine.seconds.push_back(comm.seconds() - begin);
  }
  Meter& meter = current().device.meter();
  mine.between = meter.now(), mine.peak = meter.at_peak(), mine.padded = zero.numel();
  mine.parameters = model.parameters.numel();
  mine.loss = sum_over_ranks(comm, mine.loss);
  if (!stretch.save.empty()) save_sharded(stretch.save, comm, zero.shards, optimizer);
  for (const Parameter& p : model.parameters) mine.weights.push_back(to_host<double>(p.value));  // gathered
  return mine;
}

static int lesson_18(int argc, char** argv) {
  Lesson lesson(argc, argv, "18_zero", "ZeRO: optimizer states, gradients and weights in shards", kSteps);
  Args& flags = lesson.args;
  RanksArgs args = ranks_flags(flags, 4096);
  WhatIf what_if;
  what_if.network = flags.choice(
      "network", "auto",
      "the network between the ranks; auto: nodes of 8, with the machine's own link inside a node",
      names_of(published_networks()));
  what_if.model =
      flags.text("model", "", "predict only: memory and speed of this model (gpt2-xl, gpt-48x8192x64, ...)");
  what_if.machine =
      flags.choice("machine", "A100", "the device of each rank, for --model", names_of(published_machines()));
  what_if.sequences = flags.integer("batch", 4, "sequences per rank, for --model", 1, 1 << 20);
  lesson.done({}, {lesson.plot("18_memory.svg"), lesson.plot("18_half.safetensors")});
  if (lesson.print == "example") return shards_by_hand(std::cout), print_unit_timelines(std::cout), 0;
  args.network = network_of(what_if);
  check_ranks(args.network, args.ranks);
  if (this_rank(args) > 0) lesson.write_nothing();  // rank 0 writes
  if (!what_if.model.empty()) return what_if.ranks = args.ranks, what_if_table(what_if), 0;
  // Simulated ranks do not run on a GPU.
  LessonContext context(lesson, args.comm == "sim" && lesson.device == "auto" ? "cpu" : lesson.device,
                        lesson.memory);
  ParallelTask task = parallel_task(context.device.name(), lesson.steps, lesson.seed);
  task.max_norm = 0;
  check(args.ranks <= task.batch, "--ranks=", args.ranks, ": a batch has ", task.batch,
        " sequences, and every rank needs one; only with --model there can be more ranks");
  const Text text = load_text("", task.text_bytes, task.seed);
  const Loader loader(text.corpus, task.model.context, task.seed);
  args.device = context.device.name(), args.seed = lesson.seed, args.memory_budget = lesson.memory;
  args.made = lesson.traced_ranks();
  Report report = lesson.report();
  report.config(task.model, task.batch);
  report.config("ranks", args.ranks);
  report.config("steps", lesson.steps);
  report.config("network", args.network.name);
  const TrainRank train_rank = [&](Comm& comm, const ZeroArgs& zero, const Stretch& stretch) {
    return train(comm, task, loader, zero, stretch);
  };
  compare_stages(args, task, train_on_one_device(loader, task, args.ranks), train_rank, report);
  if (args.comm != "sim") return lesson.finish(report);
  if (context.device.has_data()) resume(args, task, train_rank, lesson.plot("18_half.safetensors"), report);
  memory_table(measure_stages(), lesson.plot("18_memory.svg"), report);
  published_table(published_states(lesson.steps == kSteps ? 1024 : 64), report);  // 1,024 ranks are slow
  units_table(run_units(), report);
  times_table({}, stage_times({}), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return run_process(argc, argv, [&] { return lesson_18(argc, argv); }); });
}
