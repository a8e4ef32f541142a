#include "lessons/18_zero/step.h"

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/train/dummy.h"

namespace gradus {

int64_t state_bytes(const Usage& u) {
  int64_t bytes = 0;
  for (const Kind k : kStates) bytes += u[k];
  return bytes;
}

static ZeroStep step_of_rank(Comm& comm, const ZeroSetting& set) {
  Meter& meter = current().device.meter();
  Transformer model(set.model, Allocate::Later);
  Zero zero(comm, model.parameters, set.zero);
  AdamW optimizer(zero.shards);
  meter.reset_peak();
  meter.reset_totals();
  const int64_t sent = comm.sent().elements;
  const double begin = comm.seconds();
  model.parameters.zero_grad();
  for (int64_t micro = 0; micro < set.micro_batches; ++micro) {
    zero.last_micro_batch = micro == set.micro_batches - 1;
    const DummyBatch batch = dummy_batch(set.model, set.sequences, set.tokens);
    Tape tape;
    const Tensor loss = batch.loss(model);
    zero.end_forward();
    tape.backward(loss);
    zero.end_backward();
  }
  optimizer.step(1e-3);
  return {meter.now(),          meter.at_peak(),       model.parameters.numel(),
          zero.numel(),         meter.peak_reserved(), comm.sent().elements - sent,
          zero.most_gathered(), comm.seconds() - begin};
}

ZeroStep zero_step(const ZeroSetting& set) {
  ClusterArgs args{.ranks = set.ranks, .device = "meta", .memory_budget = set.budget, .network = set.network};
  args.computed = [&](int64_t, Context& c) {
    return set.machine.name.empty() ? 0 : predicted_seconds(c.device.meter(), set.machine);
  };
  std::vector<ZeroStep> steps(static_cast<size_t>(set.ranks));
  run_cluster(args, [&](Comm& comm) { steps[size_t(comm.rank())] = step_of_rank(comm, set); });
  for (const ZeroStep& s : steps)
    for (int k = 0; k < kKinds; ++k)
      check(s.between.by_kind[size_t(k)] <= steps[0].between.by_kind[size_t(k)] && s.sent == steps[0].sent,
            "zero: a rank keeps more than rank 0, or sends a different number of elements");
  return steps[0];
}

Usage predicted_bytes(const Precision& t, int stage, int64_t parameters, int64_t padded, int64_t ranks) {
  Usage u;
  int64_t &weight = u.by_kind[int(Kind::Weight)], &master = u.by_kind[int(Kind::Master)],
          &gradient = u.by_kind[int(Kind::Gradient)], &optimizer = u.by_kind[int(Kind::Optimizer)];
  // BEGIN SOLUTION 18.2
  const int64_t part = padded / ranks;
  weight = size_of(t.value) * (stage >= 3 ? part : padded);
  gradient = size_of(t.gradient) * (stage >= 2 ? part : padded);
  master = t.master ? size_of(DType::F32) * (stage >= 1 ? part : padded) : 0;
  optimizer = 2 * size_of(t.state) * (stage >= 1 ? part : parameters);
  // STUB: todo("18.2", "the bytes of each kind", t, stage, parameters, padded, ranks, weight, master, gradient, optimizer);
  // END SOLUTION 18.2
  return u;
}

int64_t predicted_sent(const ZeroArgs& args, int64_t padded, int64_t ranks, int64_t micro_batches) {
  // BEGIN SOLUTION 18.1
  const int64_t k = micro_batches,
                of_weights = args.stage < 3       ? 1
                             : args.keep_gathered ? k
                                                  : 2 * k,
                of_gradients = args.stage < 2 ? 1 : k;
  return (of_weights + of_gradients) * (padded / ranks) * (ranks - 1);
  // STUB: todo("18.1", "the collectives of weights and of gradients per step, times the elements of one", args, padded, ranks, micro_batches);
  // END SOLUTION 18.1
}

}  // namespace gradus
