// Lesson 19, tensor parallelism: ranks divide each layer. In each transformer block a rank has some heads of
// attention and some neurons of the MLP; all-reduces add up the partial sums of the ranks. Sequence
// parallelism also divides the norms and dropouts. Context parallelism divides the sequences instead: keys
// and values travel around a ring.
//
// Tensor parallelism needs four all-reduces per layer. A rank saves s b h (8 + 24/t) + 2 a s^2 b / t + 16 s b
// bytes of 16-bit activations; with sequence parallelism that gathers again, 1/t of what one device saves.
//
//   make lesson-19                                                          expected last line: PASS
//   make mpi-19 RANKS=4                                                     with ranks that are processes
#include <cmath>
#include <iostream>

#include "lessons/19_tensor_parallel/layer.h"
#include "lessons/19_tensor_parallel/runs.h"
#include "src/parallel/comm/processes.h"
#include "src/parallel/context_parallel.h"
#include "src/parallel/data_parallel.h"
#include "src/parallel/parts.h"
#include "src/train/lesson.h"
#include "src/train/text.h"

using namespace gradus;

static TokensRun train_tensor(Comm& comm, const ParallelTask& task, const Loader& loader, By by,
                              Sequence sequence) {
  Transformer model(task.model, Allocate::Later);
  TensorParallel ranks(comm, model, sequence);
  model.initialize(task.seed, &assign_part);
  const auto optimizer = optimizer_of(by, model.parameters);
  TokensRun mine;
  for (int64_t step = 0; step < task.steps; ++step) {
    const double begin = comm.seconds();
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = share_of_loss(model, task, read_shard(loader, task, step, 0, 1));
    tape.backward(loss);
    ranks.sum_gradients();
    mine.note_gradients(model.parameters, step);
    optimizer->step(learning_rate(by));
    mine.losses.push_back(item(loss));  // the same on all ranks
    mine.seconds.push_back(comm.seconds() - begin);
  }
  mine.end(model.parameters);
  return mine;
}

static TokensRun train_context(Comm& comm, const ParallelTask& task, const Loader& loader, By by) {
  Transformer model(task.model);
  model.initialize(task.seed);
  share_context(comm, model);
  const auto optimizer = optimizer_of(by, model.parameters);
  TokensRun mine;
  for (int64_t step = 0; step < task.steps; ++step) {
    const double begin = comm.seconds();
    const TextBatch own = chunks_of(read_shard(loader, task, step, 0, 1), comm.rank(), comm.size());
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = share_of_loss(model, task, own);
    tape.backward(loss);
    sum_gradients(comm, model.parameters);
    mine.note_gradients(model.parameters, step);
    optimizer->step(learning_rate(by));
    mine.losses.push_back(sum_over_ranks(comm, item(loss)));
    mine.seconds.push_back(comm.seconds() - begin);
  }
  mine.end(model.parameters);
  return mine;
}

static std::string on(int64_t ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }

static void compare_tensor(const RanksArgs& args, const ParallelTask& task, const Loader& loader,
                           const std::vector<int64_t>& counts, Report& report) {
  const auto train = [&](By by, Sequence sequence) {
    return
        [&task, &loader, by, sequence](Comm& comm) { return train_tensor(comm, task, loader, by, sequence); };
  };
  Compared compared(args, task, report);
  const TokensRun plain = train_alone(loader, task, By::Sgd);
  for (const int64_t t : counts) {
    const auto in_parts = [&](Transformer& model) {
      if (t > 1) add_in_parts(model, t);
    };
    const TokensRun alone = train_alone(loader, task, By::AdamW, in_parts);
    compared.with(on(t) + ", tensor, AdamW", t, By::AdamW, alone, train(By::AdamW, Sequence::Whole));
    compared.with(on(t) + ", tensor, SGD", t, By::Sgd, plain, train(By::Sgd, Sequence::Whole));
  }
  const int64_t t = args.ranks;
  const auto kept = compared.with(on(t) + ", tensor + sequence, SGD", t, By::Sgd, plain,
                                  train(By::Sgd, Sequence::KeepGathered)),
             again = compared.with(on(t) + ", tensor + sequence, gathered again, SGD", t, By::Sgd, plain,
                                   train(By::Sgd, Sequence::GatherAgain));
  compared.report("tensor parallel", 2e-6);
  check_gathered_again(kept[0], again[0], report);
}

static void compare_context(const RanksArgs& args, const ParallelTask& task, const Loader& loader,
                            const std::vector<int64_t>& counts, Report& report) {
  const auto train = [&](By by) {
    return [&task, &loader, by](Comm& comm) { return train_context(comm, task, loader, by); };
  };
  Compared compared(args, task, report);
  const TokensRun plain = train_alone(loader, task, By::Sgd);
  for (const int64_t c : counts) {
    const std::string name = on(c) + ", context";
    compared.with(name + ", AdamW", c, By::AdamW, train_in_chunks(loader, task, By::AdamW, c),
                  train(By::AdamW));
    compared.with(name + ", SGD", c, By::Sgd, plain, train(By::Sgd));
  }
  compared.report("context parallel", 1e-5);
}

static int lesson_19(int argc, char** argv) {
  Lesson lesson(argc, argv, "19_tensor_parallel",
                "tensor and context parallelism: ranks divide layers or sequences", 20);
  RanksArgs args = ranks_flags(lesson.args, 4);
  lesson.done({}, {lesson.plot("19_layer.svg")});
  if (lesson.print == "example") return layers_by_hand(std::cout), 0;
  if (this_rank(args) > 0) lesson.write_nothing();  // rank 0 writes the files
  LessonContext context(lesson, args.comm == "sim" && lesson.device == "auto" ? "cpu" : lesson.device,
                        lesson.memory);
  ParallelTask task = parallel_task(context.device.name(), lesson.steps, lesson.seed);
  task.batch = context.device.name() == std::string("emu") ? 2 : 8;
  check(task.model.heads % args.ranks == 0, "--ranks=", args.ranks, ": there are ", task.model.heads,
        " heads; give 1, 2 or 4 ranks");
  const Text text = load_text("", task.text_bytes, task.seed);
  const Loader loader(text.corpus, task.model.context, task.seed);
  Report report = lesson.report();
  report.config(task.model, task.batch);
  report.config("ranks", args.ranks);
  args.device = context.device.name(), args.seed = lesson.seed, args.memory_budget = lesson.memory;
  args.made = lesson.traced_ranks();
  const std::vector<int64_t> counts =
      args.comm == "sim" ? std::vector<int64_t>{1, 2, 4} : std::vector<int64_t>{args.ranks};
  compare_tensor(args, task, loader, counts, report);
  task.model.dropout = 0;
  compare_context(args, task, loader, counts, report);
  if (args.comm != "sim") return lesson.finish(report);
  layer_table(lesson.plot("19_layer.svg"), report);
  ring_table(report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return run_process(argc, argv, [&] { return lesson_19(argc, argv); }); });
}
