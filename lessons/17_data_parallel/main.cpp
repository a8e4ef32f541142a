// Lesson 17, data parallelism. Every rank has the whole model and reads its shard of each batch. Before the
// update the ranks add up their gradients, so all ranks make the same update. The sum is cheap if gradients
// lie in buckets, travel around a ring, and are sent while the backward pass still computes.
//
// With N ranks and Psi parameters a rank sends 2 Psi (N-1)/N elements per step: fewer than 2 Psi for any N.
//
//   make lesson-17                                                          expected last line: PASS
//   make lesson-17 ARGS="--ranks=6 --network=pcie"
#include <iostream>
#include <optional>

#include "lessons/17_data_parallel/ring.h"
#include "lessons/17_data_parallel/scaling.h"
#include "lessons/17_data_parallel/ways.h"
#include "src/core/named.h"
#include "src/io/atomic_file.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/processes.h"
#include "src/parallel/data_parallel.h"
#include "src/parallel/shards.h"
#include "src/train/lesson.h"
#include "src/train/text.h"

using namespace gradus;

constexpr int64_t kBucketBytes = int64_t(1) << 20;

static SummedRun train(Comm& comm, const ParallelTask& task, const Loader& loader, const ParallelWay& way) {
  Transformer model(task.model);
  model.initialize(task.seed);
  std::optional<GradientBuckets> buckets;
  if (way.bucket_bytes > 0) buckets.emplace(comm, model.parameters, way.bucket_bytes);
  AdamW optimizer(model.parameters);
  SummedRun mine;
  mine.numel = buckets ? buckets->numel() : model.parameters.numel();
  for (int64_t step = 0; step < task.steps; ++step) {
    const double begin = comm.seconds();
    const Sent before = comm.sent();
    const TextBatch batch = read_shard(loader, task, step, comm.rank(), comm.size());
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = share_of_loss(model, task, batch);
    if (way.overlaps) buckets->sum_during_backward();
    tape.backward(loss);
    if (buckets)
      buckets->sum();
    else
      sum_gradients(comm, model.parameters);
    optimizer.clip_grad_norm(task.max_norm);  // the norm of the sum is the same on all ranks
    optimizer.step(task.learning_rate);
    mine.sent = {comm.sent().elements - before.elements, comm.sent().bytes - before.bytes,
                 comm.sent().messages - before.messages};
    mine.loss = item(loss);  // the rank's share of the mean loss
    mine.seconds.push_back(comm.seconds() - begin);
  }
  mine.loss = sum_over_ranks(comm, mine.loss);
  for (const Parameter& p : model.parameters) mine.weights.push_back(to_host<double>(p.value));
  mine.peak = current().device.meter().at_peak();
  return mine;
}

static int lesson_17(int argc, char** argv) {
  Lesson lesson(argc, argv, "17_data_parallel",
                "data parallelism: each rank trains on a shard of the batch, gradients are summed", 20);
  RanksArgs args = ranks_flags(lesson.args, ParallelTask().batch);
  const int64_t most = args.ranks;
  const std::string network = lesson.args.choice("network", "ethernet10", "the network between the ranks",
                                                 names_of(published_networks()));
  lesson.done({}, {lesson.plot("17_ring.svg"), lesson.plot("17_efficiency.svg"),
                   lesson.plot("17_overlapped.svg"), lesson.plot("17_overlapped.json")});
  if (lesson.print == "example") return print_ring(std::cout, watch_ring(4)), 0;
  args.network = network_called(network);
  check_ranks(args.network, most);
  if (this_rank(args) > 0) lesson.write_nothing();  // rank 0 writes
  // Simulated ranks do not run on a GPU.
  LessonContext context(lesson, args.comm == "sim" && lesson.device == "auto" ? "cpu" : lesson.device,
                        lesson.memory);
  const ParallelTask task = parallel_task(context.device.name(), lesson.steps, lesson.seed);
  const Text text = load_text("", task.text_bytes, task.seed);
  const Loader loader(text.corpus, task.model.context, task.seed);
  Report report = lesson.report();
  report.config(task.model, task.batch);
  report.config("ranks", most);
  report.config("steps", lesson.steps);
  report.config("network", network);
  report.config("clock", args.comm == "sim" ? "simulated" : "measured");
  args.device = context.device.name(), args.seed = lesson.seed, args.memory_budget = lesson.memory;
  args.made = lesson.traced_ranks();
  const TrainOneWay train_rank = [&](Comm& comm, const ParallelWay& way) {
    return train(comm, task, loader, way);
  };
  std::vector<int64_t> counts{1, 2, 3, 8};
  std::erase(counts, most);
  if (args.comm != "sim") counts.clear();
  counts.push_back(most);
  const OneDevice whole = train_on_one_device(loader, task, 1);
  for (const int64_t ranks : counts) {
    args.ranks = ranks;
    const OneDevice alone = ranks == 1 ? whole : train_on_one_device(loader, task, ranks);
    if (ranks > 1) check_shards(ranks, alone, whole, report);
    if (ranks == most) {
      compare_way(args, task, train_rank, {"one all-reduce per gradient"}, alone, report);
      compare_way(args, task, train_rank, {"buckets, no overlap", kBucketBytes}, alone, report);
    }
    compare_way(args, task, train_rank, {"buckets, overlapped", kBucketBytes, true}, alone, report);
  }
  if (args.comm != "sim") return lesson.finish(report);
  const RingSteps ring = watch_ring(4);
  std::cout << "\n(a) Ring all-reduce of 4 ranks: the 4 parts on each rank after each step; rank r starts "
               "with 10^r in each part; [changed in this step]\n";
  print_ring(std::cout, ring);
  write_file(lesson.plot("17_ring.svg"), draw_ring(ring));
  check_ring(count_ring(network_called("pcie"), 6, 6000), report);
  scaling_table(scaled_steps({1, 2, 4, 8, 16, 32, 64}), scaled_steps({8, 64}, kPublishedSeconds),
                lesson.plot("17_efficiency.svg"), report);
  timelines(lesson);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return run_process(argc, argv, [&] { return lesson_17(argc, argv); }); });
}
