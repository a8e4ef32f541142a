#include "lessons/19_tensor_parallel/runs.h"

#include <cmath>

#include "src/core/larger.h"
#include "src/memory/device_timing.h"
#include "src/tensor/context.h"

namespace gradus {

std::unique_ptr<Optimizer> optimizer_of(By by, Parameters& parameters) {
  if (by == By::AdamW) return std::make_unique<AdamW>(parameters);
  return std::make_unique<Sgd>(parameters);
}

void TokensRun::note_gradients(const Parameters& parameters, int64_t step) {
  if (step > 0 || !current().device.has_data()) return;
  for (const Parameter& p : parameters) {
    first_gradients.push_back(to_host<double>(p.leaf.grad));
    shards.push_back(p.shard);
  }
}

void TokensRun::end(const Parameters& parameters) {
  loss = losses.back();
  if (!current().device.has_data()) return;
  for (const Parameter& p : parameters) weights.push_back(to_host<double>(p.value));
}

TokensRun train_alone(const Loader& loader, const ParallelTask& task, By by,
                      const std::function<void(Transformer&)>& change) {
  Context context(current().device.name(), task.seed);
  Transformer model(task.model);
  model.initialize(task.seed);
  if (change) change(model);
  const auto optimizer = optimizer_of(by, model.parameters);
  TokensRun run;
  for (int64_t step = 0; step < task.steps; ++step) {
    const double begin = seconds_now(context.device);
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = share_of_loss(model, task, read_shard(loader, task, step, 0, 1));
    tape.backward(loss);
    run.note_gradients(model.parameters, step);
    optimizer->step(learning_rate(by));
    run.losses.push_back(item(loss));
    run.seconds.push_back(seconds_now(context.device) - begin);
  }
  run.end(model.parameters);
  return run;
}

static std::vector<double> same_part(const TokensRun& rank, const Weights& whole, size_t i) {
  return rank.shards[i] ? rank.shards[i]->of_values(whole[i]) : whole[i];
}

// The number of parameters whose values on this rank differ bitwise.
static double count_unlike(const TokensRun& rank, const TokensRun& alone) {
  if (!current().device.has_data()) return NAN;
  double unlike = 0;
  for (size_t i = 0; i < alone.weights.size(); ++i)
    unlike += i >= rank.weights.size() || rank.weights[i] != same_part(rank, alone.weights, i);
  return unlike;
}

static double losses_off(const TokensRun& rank, const TokensRun& alone) {
  double worst = rank.losses.size() == alone.losses.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(rank.losses.size(), alone.losses.size()); ++i)
    worst = larger(worst, std::abs(rank.losses[i] - alone.losses[i]));
  return worst;
}

// The largest relative difference: the norm of the difference divided by the norm of the gradient.
static double gradients_off(const TokensRun& rank, const TokensRun& alone) {
  if (!current().device.has_data()) return NAN;
  double worst = rank.first_gradients.size() == alone.first_gradients.size() ? 0 : INFINITY;
  for (size_t i = 0; i < rank.first_gradients.size() && std::isfinite(worst); ++i) {
    const std::vector<double> expected = same_part(rank, alone.first_gradients, i);
    double off = 0, norm = 0;
    for (size_t k = 0; k < expected.size(); ++k) {
      off += (rank.first_gradients[i][k] - expected[k]) * (rank.first_gradients[i][k] - expected[k]);
      norm += expected[k] * expected[k];
    }
    worst = larger(worst, std::sqrt(off / norm));
  }
  return worst;
}

std::vector<TokensRun> Compared::with(const std::string& name, int64_t ranks, By by, const TokensRun& alone,
                                      const Train& train) {
  args_.ranks = ranks;
  std::vector<TokensRun> all(static_cast<size_t>(ranks));
  run_ranks(args_, [&](Comm& comm) {
    TokensRun& mine = all[size_t(comm.rank())];
    mine = train(comm);
    mine.sent = comm.sent().elements;
  });
  if (args_.comm != "sim") all = {all[size_t(this_rank(args_))]};
  ReportRow& row = add_row(report_, name, all[0], task_);
  row.peak.reset();
  row.extra = {{"elements sent per rank", double(all[0].sent) / double(task_.steps)}};
  for (const TokensRun& r : all) {
    double& losses = by == By::AdamW ? exact_losses_ : losses_;
    losses = larger(losses, losses_off(r, alone));
    if (by == By::AdamW)
      unlike_ += count_unlike(r, alone);
    else
      gradients_ = larger(gradients_, gradients_off(r, alone));
  }
  return all;
}

void Compared::report(const std::string& name, double most) const {
  const std::string adamw = name + ", AdamW: ", sgd = name + ", SGD: ";
  report_.check_at_most(adamw + "parameters that differ bitwise from the single-device run", unlike_, 0);
  report_.check_at_most(adamw + "largest difference of a loss from the single-device run", exact_losses_, 0);
  report_.check_at_most(sgd + "largest difference of a loss from plain training", losses_, 1e-6);
  report_.check_at_most(sgd + "largest relative difference of a gradient, first step", gradients_, most);
}

void check_gathered_again(const TokensRun& once, const TokensRun& again, Report& report) {
  report.check_at_most("sequence parallel: largest difference of weights, gathered again from gathered once",
                       current().device.has_data() ? off_by(once.weights, again.weights) : NAN, 0);
}

}  // namespace gradus
