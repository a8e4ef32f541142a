#include "src/train/memory_need.h"

#include "src/optim/optimizer.h"
#include "src/train/dummy.h"

namespace gradus {

// The first step allocates the gradients, so the second step is the first with the requests of all later
// ones. It still finds segments that were split for the first step, so the next steps may take a few more
// from the device; of 540 runs (five models, three recipes, batches and lengths) none took any after the
// fourth.
constexpr int kSteps = 4;

static void train(const TrainingRun& run) {
  Transformer model(run.model);
  run.prepare(model);
  AdamW optimizer(model.parameters);
  for (int step = 0; step < kSteps; ++step) {
    const DummyBatch batch = dummy_batch(run.model, run.batch, run.seq);
    Tape tape;
    const Tensor loss = batch.loss(model);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.step(0);
  }
}

// Counts of FLOPs and bytes are int64, and those of all steps are summed.
constexpr double kMostFlops = 4e18 / kSteps;
constexpr int64_t kMostBytes = int64_t(1) << 60;

static int64_t most_sequences(const TrainingRun& run) {
  const double most = kMostFlops / double(run.model.flops_per_token()) / double(run.seq);
  return int64_t(std::min(most, double(int64_t(1) << 24)));
}

MemoryNeed memory_need(const TrainingRun& run) {
  check(run.batch >= 1 && run.seq >= 1, "memory: a batch of ", run.batch, " sequences of ", run.seq,
        " tokens; both must be at least 1");
  check(run.batch <= most_sequences(run), "memory: a batch of ", run.batch, " sequences of ", run.seq,
        " tokens is more than gradus can count; the most is ", most_sequences(run));
  Context meta("meta", 1, kMostBytes);
  Allocator& allocator = meta.device.allocator();
  allocator.keep_history();
  train(run);
  return {memory_peak(allocator.history()), allocator.meter().peak_reserved(), run.model.parameter_count()};
}

bool fits(const TrainingRun& run, int64_t budget) {
  check(budget >= 1, "memory: a budget of ", budget, " bytes; it must be at least 1");
  try {
    Context meta("meta", 1, budget);
    train(run);
    return true;
  } catch (const OutOfMemory&) {
    return false;
  }
}

int64_t largest_batch(TrainingRun run, int64_t budget) {
  const int64_t most = most_sequences(run);
  const auto batch_fits = [&](int64_t batch) {
    run.batch = batch;
    return batch <= most && fits(run, budget);
  };
  int64_t good = 0, bad = 1;
  while (batch_fits(bad)) good = bad, bad *= 2;
  while (bad - good > 1) {
    const int64_t middle = (good + bad) / 2;
    (batch_fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace gradus
