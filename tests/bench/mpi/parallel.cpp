// Times training steps of a GPT on ranks that are processes, with all-reduce of gradients in buckets during
// the backward pass. Every second step has no all-reduce, which gives the fraction of a step that is
// communication. Prints one JSON line.
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/core/timing.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/processes.h"
#include "src/parallel/data_parallel.h"
#include "src/train/dummy.h"
#include "src/train/lesson.h"

using namespace gradus;

static int parallel(int argc, char** argv) {
  Args flags(argc, argv, "parallel", "steps of a GPT on ranks that are processes");
  TransformerConfig config;
  config.layers = flags.integer("layers", 4, "blocks", 1, 1000);
  config.heads = flags.integer("heads", 4, "heads", 1, 1000);
  config.channels = flags.integer("dim", 128, "channels", 1, 100'000);
  config.vocab = flags.integer("vocab", 256, "vocabulary", 1, 1'000'000);
  config.context = flags.integer("seq", 64, "tokens per sequence", 1, 100'000);
  const int64_t batch = flags.integer("batch", 12, "sequences per rank", 1, 100'000);
  const int64_t steps =
      flags.integer("steps", 40, "timed steps, and as many without all-reduce", 1, 1'000'000);
  flags.done();
  RanksArgs args;
  args.comm = "mpi", args.ranks = this_process().count;
  run_ranks(args, [&](Comm& comm) {
    Transformer model(config);
    model.initialize(1);
    GradientBuckets buckets(comm, model.parameters, int64_t(25) << 20);
    AdamW optimizer(model.parameters);
    const DummyBatch data = dummy_batch(config, batch, config.context, uint64_t(comm.rank() + 1));
    std::vector<double> with, without;
    double value = 0;
    for (int64_t step = 0; step < 2 * steps + 2; ++step) {
      const bool sums = step % 2 == 0;
      comm.barrier();
      const double begin = seconds_now();
      Tape tape;
      const Tensor loss = data.loss(model);
      if (sums) buckets.sum_during_backward();
      tape.backward(loss);
      if (sums) buckets.sum();
      optimizer.step(3e-4);
      model.parameters.zero_grad();
      value = item(loss);
      if (step >= 2) (sums ? with : without).push_back(seconds_now() - begin);
    }
    if (comm.rank() > 0) return;
    const double step = summarize(with).median;
    std::cout << json_text({{"bench", "parallel"},
                            {"ranks", comm.size()},
                            {"parameters", model.parameters.numel()},
                            {"ms_per_step", step * 1e3},
                            {"communication", 1 - summarize(without).median / step},
                            {"loss", value}})
              << std::endl;
  });
  return 0;
}

int main(int argc, char** argv) {
  return run_lesson([&] { return run_process(argc, argv, [&] { return parallel(argc, argv); }); });
}
