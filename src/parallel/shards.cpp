#include "src/parallel/shards.h"

#include <cmath>
#include <numeric>

#include "src/core/larger.h"
#include "src/core/timing.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"

namespace gradus {

RanksArgs ranks_flags(Args& flags, int64_t most, int64_t usual) {
  RanksArgs args;
  args.ranks = flags.integer("ranks", usual, "number of ranks (devices that train together)", 1, most);
  args.comm = flags.choice("comm", "sim", "sim: simulated ranks; mpi, nccl: processes (make mpi-NN)",
                           {"sim", "mpi", "nccl"});
  timeout_flag(flags);
  return args;
}

ParallelTask parallel_task(std::string_view device, int64_t steps, uint64_t seed) {
  ParallelTask task;
  task.steps = steps, task.seed = seed;
  if (device == "emu")
    task.text_bytes = 60'000, task.model.context = 8, task.model.layers = 2, task.model.channels = 16;
  return task;
}

TextBatch read_shard(const Loader& loader, const ParallelTask& task, int64_t step, int64_t rank,
                     int64_t ranks) {
  const int64_t T = task.model.context;
  // BEGIN SOLUTION 17.1
  const Split split = even_split(task.batch, ranks);
  const int64_t first = std::accumulate(split.begin(), split.begin() + rank, int64_t(0));
  const int64_t count = split[size_t(rank)];
  // STUB: int64_t first = 0, count = 0; todo("17.1", "the first of the rank's sequences, and how many it reads", rank, ranks, first, count);
  // END SOLUTION 17.1
  TextBatch mine{count, T, std::vector<int32_t>(size_t(count * T)), std::vector<int32_t>(size_t(count * T)),
                 first};
  loader.train_windows(step, first, count, mine.ids.data(), mine.targets.data());
  return mine;
}

Tensor share_of_loss(const Transformer& model, const ParallelTask& task, const TextBatch& mine) {
  const Tensor count = from_host<float>(current().device, {float(task.batch * task.model.context)}, {},
                                        DType::F32, Kind::Data, "targets of all ranks");
  current().first_sample = mine.first_sample;
  return model.loss(on_device(mine.ids, mine.T, "inputs"), on_device(mine.targets, mine.T, "targets"), {},
                    count);
}

double sum_over_ranks(Comm& comm, double mine) {
  const Tensor x = from_host<double>(current().device, {mine}, {1}, DType::F64, Kind::Other, "mine"),
               all = empty(x, {comm.size()}, "of all ranks");
  comm.all_gather(x, all)->wait();
  const std::vector<double> values = to_host<double>(all);
  return std::accumulate(values.begin(), values.end(), 0.0);
}

OneDevice train_on_one_device(const Loader& loader, const ParallelTask& task, int64_t ranks) {
  Context context(current().device.name(), task.seed);
  Transformer model(task.model);
  model.initialize(task.seed);
  AdamW optimizer(model.parameters);
  OneDevice run{{}, 0};
  for (int64_t step = 0; step < task.steps; ++step) {
    std::vector<Tensor> sums;
    run.loss_last = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      model.parameters.drop_grad();
      Tape tape;
      const Tensor loss = share_of_loss(model, task, read_shard(loader, task, step, rank, ranks));
      run.loss_last += item(loss);
      tape.backward(loss);
      size_t i = 0;
      for (Parameter& p : model.parameters) {
        const Tensor& g = p.leaf.grad;
        if (rank == 0)
          sums.push_back(g);
        else
          cast(g, sums[i].add());
        ++i;
      }
    }
    for (size_t i = 0; Parameter & p : model.parameters) p.leaf.grad = sums[i++];
    optimizer.clip_grad_norm(task.max_norm);
    optimizer.step(task.learning_rate);
  }
  for (const Parameter& p : model.parameters) run.weights.push_back(to_host<double>(p.value));
  return run;
}

ReportRow& add_row(Report& report, const std::string& name, const RankRun& run, const ParallelTask& task) {
  ReportRow& row = report.row(name);
  row.peak = run.peak;
  if (current().device.has_data()) {
    row.ms_per_step = summarize(run.seconds).median * 1e3;
    row.tokens_per_s = double(task.batch * task.model.context) / (*row.ms_per_step * 1e-3);
    row.loss_last = run.loss;
  }
  return row;
}

double count_unlike(const RankRun& run, const OneDevice& alone) {
  if (!current().device.has_data()) return NAN;
  if (run.weights.empty() || run.weights.size() != alone.weights.size())
    return double(std::max<size_t>(alone.weights.size(), 1));
  int64_t unlike = 0;
  for (size_t i = 0; i < run.weights.size(); ++i) unlike += run.weights[i] != alone.weights[i];
  return double(unlike);
}

double off_by(const Weights& a, const Weights& b) {
  double worst = a.empty() || a.size() != b.size() ? INFINITY : 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].size() != b[i].size()) return INFINITY;
    for (size_t k = 0; k < a[i].size(); ++k) worst = larger(worst, std::abs(a[i][k] - b[i][k]));
  }
  return worst;
}

}  // namespace gradus
