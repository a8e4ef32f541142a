#include "lessons/19_tensor_parallel/runs.h"

#include <cmath>

#include "src/core/larger.h"
#include "src/memory/device_timing.h"
#include "src/tensor/context.h"

namespace gradus {

const UpdateBy kAdamW{"AdamW", 1e-3,
                      [](Parameters& p) -> std::unique_ptr<Optimizer> { return std::make_unique<AdamW>(p); }};
const UpdateBy kSgd{"SGD", 0.03,
                    [](Parameters& p) -> std::unique_ptr<Optimizer> { return std::make_unique<Sgd>(p); }};

TextBatch whole_batch(const Loader& loader, const ParallelTask& task, int64_t step) {
  return read_shard(loader, task, step, 0, 1);
}

void note_gradients(TokensRun& run, const Parameters& parameters, int64_t step) {
  if (step > 0 || !current().device.has_data()) return;
  for (const Parameter& p : parameters) {
    run.first_gradients.push_back(to_host<double>(p.leaf.grad));
    run.shards.push_back(p.shard);
  }
}
void note_weights(TokensRun& run, const Parameters& parameters) {
  run.peak = current().device.meter().at_peak();
  if (!current().device.has_data()) return;
  for (const Parameter& p : parameters) run.weights.push_back(to_host<double>(p.value));
}

TokensRun train_alone(const Loader& loader, const ParallelTask& task, const UpdateBy& update,
                      const std::function<void(Transformer&)>& change) {
  Context context(current().device.name(), task.seed);
  Transformer model(task.model);
  model.initialize(task.seed);
  if (change) change(model);
  const auto optimizer = update.make(model.parameters);
  TokensRun run;
  for (int64_t step = 0; step < task.steps; ++step) {
    const double begin = seconds_now(context.device);
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = share_of_loss(model, task, whole_batch(loader, task, step));
    tape.backward(loss);
    note_gradients(run, model.parameters, step);
    optimizer->step(update.learning_rate);
    run.losses.push_back(item(loss));
    run.seconds.push_back(seconds_now(context.device) - begin);
  }
  run.loss = run.losses.back();
  note_weights(run, model.parameters);
  return run;
}

static std::vector<double> same_part(const TokensRun& rank, const Weights& whole, size_t i) {
  return rank.shards[i] ? rank.shards[i]->of_values(whole[i]) : whole[i];
}

int64_t count_unlike(const TokensRun& rank, const TokensRun& alone) {
  int64_t unlike = 0;
  for (size_t i = 0; i < alone.weights.size(); ++i)
    unlike += i >= rank.weights.size() || rank.weights[i] != same_part(rank, alone.weights, i);
  return unlike;
}

double losses_off(const TokensRun& rank, const TokensRun& alone) {
  double worst = rank.losses.size() == alone.losses.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(rank.losses.size(), alone.losses.size()); ++i)
    worst = larger(worst, std::abs(rank.losses[i] - alone.losses[i]));
  return worst;
}

double gradients_off(const TokensRun& rank, const TokensRun& alone) {
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

}  // namespace gradus
