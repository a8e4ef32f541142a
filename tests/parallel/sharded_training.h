// The training in tests of data parallelism and of ZeRO, and the reference on one rank that they must equal.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "src/core/rng.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/zero.h"

namespace gradus {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
template <class O, class... Args>
MakeOptimizer optimizer_of(Args... args) {
  return [=](Parameters& p) { return std::make_unique<O>(p, args...); };
}

struct ShardedSetting {
  std::string name = "";
  TransformerConfig model{.vocab = 37, .context = 6, .layers = 3, .heads = 2, .channels = 12, .dropout = 0.1};
  int64_t ranks = 2, micro_batches = 1, first_step = 0, steps = 20;
  int64_t batch = 24;    // sequences per step: of all ranks and micro-batches
  double max_norm = -1;  // -1: no clipping
  std::string device = "cpu";
  std::function<void(Transformer&)> prepare = [](Transformer&) {};
  // Functions of a rank's loss, and of the gradients when they are summed and clipped.
  std::function<Tensor(const Tensor& loss, int64_t step, int64_t rank)> bend = [](const Tensor& loss, int64_t,
                                                                                  int64_t) { return loss; };
  std::function<void(int64_t step, Optimizer&)> before_update = [](int64_t, Optimizer&) {};
  MakeOptimizer make = optimizer_of<AdamW>(AdamWArgs{.weight_decay = 0.1f});
  // With ZeRO: sets the initial weights, instead of an initialization.
  std::function<void(Comm&, Zero&, Optimizer&)> load = {};
};

using Weights = std::vector<std::vector<double>>;  // by parameter
inline Weights weights_of(Parameters& parameters) {
  Weights all;
  for (const Parameter& p : parameters) all.push_back(to_host<double>(p.value));
  return all;
}
inline Weights weights_of(Transformer& model) { return weights_of(model.parameters); }
inline void expect_weights(Parameters& parameters, const Weights& expected, const std::string& what) {
  const Weights got = weights_of(parameters);
  ASSERT_EQ(got.size(), expected.size());
  size_t i = 0;
  for (const Parameter& p : parameters) {
    EXPECT_EQ(got[i], expected[i]) << what << ", " << p.name;
    ++i;
  }
}

// The loss of micro-batch `micro` on rank `rank`: its share of the mean over the whole batch.
inline Tensor share_of_loss(const ShardedSetting& set, const Transformer& model, int64_t step, int64_t rank,
                            int64_t micro) {
  const int64_t T = set.model.context, count = set.batch / set.ranks / set.micro_batches;
  const int64_t first = (rank * set.micro_batches + micro) * count;
  std::vector<int32_t> ids, targets;
  for (int64_t i = 0; i < count * T; ++i) {
    Rng rng(7, uint64_t(step), uint64_t(first * T + i));
    ids.push_back(int32_t(rng.below(uint64_t(set.model.vocab))));
    targets.push_back(int32_t((ids.back() * 3 + 1) % set.model.vocab));
  }
  Context& context = current();
  context.first_sample = first;
  const auto tensor = [&](const std::vector<int32_t>& values) {
    return from_host(context.device, values, {count, T}, DType::I32, Kind::Data, "batch");
  };
  const Tensor all =
      from_host<float>(context.device, {float(set.batch * T)}, {1}, DType::F32, Kind::Data, "all");
  return set.bend(model.loss(tensor(ids), tensor(targets), {}, all), step, rank);
}

// Changes gradients in their dtype; they stay in the leaves.
inline std::vector<std::vector<float>> rounded_as_gradients(Transformer& model,
                                                            std::vector<std::vector<float>> x) {
  size_t i = 0;
  for (Parameter& p : model.parameters) {
    copy_from_host(p.leaf.grad, std::vector<double>(x[i].begin(), x[i].end()));
    x[i++] = to_host<float>(p.leaf.grad);
  }
  return x;
}

enum class Summed : uint8_t { EachStep, EachMicroBatch };

// All ranks' gradients on one device, one rank after the other, each in a separate buffer; the buffers are
// added in rank order, after the last micro-batch or after each, in fp32, and each sum is rounded once.
inline Weights train_on_one_rank(
    const ShardedSetting& set, Summed summed,
    const std::function<void(Transformer&, Optimizer&)>& inspect = [](Transformer&, Optimizer&) {}) {
  Context context(set.device, 3);
  Transformer model(set.model);
  set.prepare(model);
  model.initialize(1);
  const auto optimizer = set.make(model.parameters);
  using Buffers = std::vector<std::vector<float>>;
  const auto add = [](Buffers& to, const Buffers& x) {
    if (to.empty()) return void(to = x);
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t k = 0; k < x[i].size(); ++k) to[i][k] += x[i][k];
  };
  const auto gradient = [&](int64_t step, int64_t rank, int64_t first, int64_t end) {
    model.parameters.zero_grad();
    for (int64_t micro = first; micro < end; ++micro) {
      Tape tape;
      tape.backward(share_of_loss(set, model, step, rank, micro));
    }
    Buffers b;
    for (const Parameter& p : model.parameters) b.push_back(to_host<float>(p.leaf.grad));
    return b;
  };
  for (int64_t step = 0; step < set.steps; ++step) {
    const int64_t k = set.micro_batches, times = summed == Summed::EachStep ? 1 : k;
    Buffers total;
    for (int64_t t = 0; t < times; ++t) {
      Buffers sum;
      for (int64_t r = 0; r < set.ranks; ++r) add(sum, gradient(step, r, t * k / times, (t + 1) * k / times));
      add(total, rounded_as_gradients(model, sum));
      total = rounded_as_gradients(model, total);
    }
    if (set.max_norm >= 0) optimizer->clip_grad_norm(set.max_norm);
    set.before_update(step, *optimizer);
    optimizer->step(1e-2);
  }
  inspect(model, *optimizer);
  return weights_of(model);
}

// A sharded model with its initial weights.
struct ShardedTransformer {
  Transformer model;
  Zero zero;
  ShardedTransformer(const TransformerConfig& config, Comm& comm, const ZeroArgs& args)
      : model(config, Allocate::Later), zero(comm, model.parameters, args) {
    model.initialize(1, [&](Parameter& p, const std::vector<double>& values) { zero.assign(p, values); });
  }
};

// The training of a rank with ZeRO; calls `inspect` with the final state.
inline void train_with_zero(const ShardedSetting& set, Comm& comm, ZeroArgs args,
                            const std::function<void(Transformer&, Zero&, Optimizer&)>& inspect) {
  Transformer model(set.model, Allocate::Later);
  set.prepare(model);
  Zero zero(comm, model.parameters, std::move(args));
  if (!set.load)
    model.initialize(1, [&](Parameter& p, const std::vector<double>& values) { zero.assign(p, values); });
  const auto optimizer = set.make(zero.shards);
  if (set.load) set.load(comm, zero, *optimizer);
  for (int64_t step = set.first_step; step < set.steps; ++step) {
    zero.model().zero_grad();
    for (int64_t micro = 0; micro < set.micro_batches; ++micro) {
      zero.last_micro_batch = micro == set.micro_batches - 1;
      Tape tape;
      const Tensor loss = share_of_loss(set, model, step, comm.rank(), micro);
      zero.end_forward();
      tape.backward(loss);
      zero.end_backward();
    }
    if (set.max_norm >= 0) optimizer->clip_grad_norm(set.max_norm);
    set.before_update(step, *optimizer);
    optimizer->step(1e-2);
  }
  inspect(model, zero, *optimizer);
}

}  // namespace gradus
