#include "lessons/21_mixture_of_experts/ranks.h"

#include <cmath>
#include <iostream>

#include "lessons/21_mixture_of_experts/runs.h"
#include "src/core/larger.h"
#include "src/core/table.h"
#include "src/parallel/expert_parallel.h"
#include "src/parallel/parts.h"

namespace gradus {

static ParallelTask experts_task(const TransformerConfig& c, int64_t batch) {
  ParallelTask task{.model = c, .batch = batch};
  task.seed = current().seed;
  return task;
}

ExpertsRun step_on_ranks(const ClusterArgs& args, const TransformerConfig& c, const Loader& loader,
                         int64_t batch) {
  ExpertsRun run;
  const ParallelTask task = experts_task(c, batch);
  run_cluster(args, [&](Comm& comm) {
    Transformer model(c, Allocate::Later);
    ExpertParallel experts(comm, model);
    model.initialize(task.seed, &assign_part);
    Tape tape;
    const Tensor loss = share_of_loss(model, task, read_shard(loader, task, 0, comm.rank(), comm.size()));
    tape.backward(loss);
    const int64_t sent = comm.sent().elements;
    experts.sum_gradients();
    const double sum = sum_over_ranks(comm, item(loss));
    if (comm.rank() == 0) {
      run.sent = sent, run.loss = sum, run.peak = current().device.meter().at_peak();
      for (const Parameter& p : model.parameters)
        run.gradients.emplace_back(p.shard ? size_t(p.shard->whole.numel()) : size_t(p.value.numel()));
    }
    comm.barrier();
    if (!current().device.has_data()) return;
    for (size_t i = 0; const Parameter& p : model.parameters) {
      const std::vector<double> own = to_host<double>(p.leaf.grad);
      std::vector<double>& whole = run.gradients[i++];
      if (p.shard)
        p.shard->each_range([&](int64_t to, int64_t from, int64_t n) {
          std::copy_n(&own[size_t(from)], n, &whole[size_t(to)]);
        });
      else if (comm.rank() == 0)
        whole = own;
    }
  });
  return run;
}

// The loss of the same step on a single device, which computes the sequences of one rank after the other and
// adds the losses in rank order.
static double loss_alone(const TransformerConfig& c, const Loader& loader, int64_t batch, int64_t ranks) {
  const ParallelTask task = experts_task(c, batch);
  Transformer model(c);
  model.initialize(task.seed);
  double sum = 0;
  for (int64_t r = 0; r < ranks; ++r)
    sum += item(share_of_loss(model, task, read_shard(loader, task, 0, r, ranks)));
  return sum;
}

int64_t elements_to_experts(const TransformerConfig& c, int64_t batch, int64_t ranks) {
  const int64_t rows = c.experts * batch / ranks * c.expert_capacity(c.context);
  return 4 * c.layers * rows * c.channels * (ranks - 1) / ranks;
}

// The largest difference of a parameter's gradient: the norm of the difference divided by the gradient's
// norm.
static double gradients_off(const ExpertsRun& run, const ExpertsRun& alone) {
  double worst = run.gradients.size() == alone.gradients.size() ? 0 : INFINITY;
  for (size_t i = 0; i < run.gradients.size() && std::isfinite(worst); ++i) {
    double off = 0, norm = 0;
    for (size_t k = 0; k < alone.gradients[i].size(); ++k) {
      const double a = alone.gradients[i][k], d = run.gradients[i][k] - a;
      off += d * d, norm += a * a;
    }
    worst = larger(worst, std::sqrt(off / norm));
  }
  return worst;
}

void ranks_table(ClusterArgs args, const TransformerConfig& c, const Loader& loader, int64_t batch,
                 Report& report) {
  std::cout << "\n(d) Expert parallelism, one forward and backward pass: elements sent to the experts of all "
               "blocks and back\n"
               "differences: from the single-device run, which computes the sequences of one rank after the "
               "other\n";
  Table table({"ranks", "loss", "loss difference", "gradient difference, relative", "elements sent per rank",
               "predicted", "peak of rank 0"});
  const bool data = current().device.has_data();
  std::optional<ExpertsRun> alone;
  RanksOff worst{data ? 0 : NAN, data ? 0 : NAN, 0};
  for (const int64_t n : {1, 2, 4}) {
    args.ranks = n;
    const ExpertsRun run = step_on_ranks(args, c, loader, batch);
    if (!alone) alone = run;
    const double loss_off = data ? std::abs(run.loss - loss_alone(c, loader, batch, n)) : NAN,
                 off = data ? gradients_off(run, *alone) : NAN;
    worst.losses = larger(worst.losses, loss_off), worst.gradients = larger(worst.gradients, off);
    worst.sent += std::abs(run.sent - elements_to_experts(c, batch, n));
    table.row({std::to_string(n), measured_text(data ? run.loss : NAN), measured_text(loss_off),
               measured_text(off), count_text(run.sent), count_text(elements_to_experts(c, batch, n)),
               bytes_text(run.peak.allocated())});
  }
  std::cout << table;
  check_runs_on_ranks(worst, report);
}

void check_runs_on_ranks(const RanksOff& off, Report& report) {
  report.check_at_most("(d) largest difference of a loss from the single-device run", off.losses, 0);
  report.check_at_most(
      "(d) largest difference of a gradient from the single-device run, relative to its norm", off.gradients,
      1e-6);
  report.check_equal("(d) elements sent per rank that differ from the prediction", off.sent, 0);
}

}  // namespace gradus
