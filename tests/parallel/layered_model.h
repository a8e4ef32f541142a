// Models of a few layers that are not a Transformer, and how they train with ZeRO and on one rank.
#pragma once
#include <algorithm>
#include <memory>

#include "src/nn/layers.h"
#include "src/parallel/data_parallel.h"
#include "tests/parallel/sharded_training.h"

namespace gradus {

// The bytes that parameters and operations on them need while a pass is between two layers: the maximum of
// each pass.
struct Samples {
  int64_t forward = 0, backward = 0, count = 0;
  int64_t gradient = 0;  // of both passes, gradients only
  void take(int64_t& most) {
    const Usage& now = current().device.meter().now();
    most = std::max(most, now[Kind::Weight] + now[Kind::Gradient] + now[Kind::Comm]);
    gradient = std::max(gradient, now[Kind::Gradient]);
    ++count;
  }
};
// Returns x; takes the samples there, in both directions.
inline Tensor sampled(const Tensor& x, Samples* samples) {
  samples->take(samples->forward);
  return record("sample", {x}, {}, x.detach(), [samples](const Node&, const Tensor& dy, Grads& dx) {
    samples->take(samples->backward);
    dx.pass(0, dy);
  });
}

struct LayeredModel {
  explicit LayeredModel(Allocate allocate) : parameters(allocate) {}
  LayeredModel(const LayeredModel&) = delete;
  Linear& linear(const std::string& name, int64_t in, int64_t out) {
    return linears.emplace_back(parameters, name, in, out);
  }
  Norm& norm(const std::string& name, int64_t channels) {
    return norms.emplace_back(parameters, name, channels, Precision{}, 1e-5);
  }
  Parameters parameters;
  std::deque<Linear> linears;
  std::deque<Norm> norms;
  std::function<Tensor(const Tensor&)> forward;
  int64_t in = 4, out = 4;  // columns of x and y
  Samples samples;
};
using Declare = std::function<void(LayeredModel&)>;

inline void declare_five(LayeredModel& m) {
  for (int i = 0; i < 5; ++i) m.linear("l" + std::to_string(i), 4, 4);
  m.forward = [&m](const Tensor& x) {
    Tensor y = x;
    for (const Linear& l : m.linears) y = l(y);
    return y;
  };
}

// Near the identity, so that the values neither vanish nor explode in a hundred layers.
inline std::vector<double> first_values(const Parameter& p) {
  const Shape& shape = p.leaf.shape;
  Rng rng(5, std::hash<std::string>()(p.name) % 1'000'000);
  std::vector<double> values(size_t(shape.numel()));
  for (double& v : values) v = 0.1 * rng.normal();
  if (shape.rank() == 2)
    for (int64_t i = 0; i < std::min(shape[0], shape[1]); ++i) values[size_t(i * shape[1] + i)] += 1;
  return values;
}

inline Tensor rows_of(int64_t step, int64_t rank, int64_t columns, uint64_t stream) {
  Rng rng(8, stream + 100 * uint64_t(step) + 10'000 * uint64_t(rank));
  std::vector<double> values(size_t(2 * columns));
  for (double& v : values) v = rng.normal();
  return from_host(current().device, values, {2, columns}, DType::F32, Kind::Data, "rows");
}

struct LayeredRun {
  Declare declare;
  int64_t ranks = 2, steps = 3;
  int64_t passes = 1;  // forward passes of a step, each with a tape; then their backward passes, last first
  // Called by the ranks: after each forward pass, after each backward pass, and between steps.
  std::function<void(LayeredModel&, Zero&)> after_forward = {}, after_backward = {}, after_update = {};
};

// A step's gradients; without `zero` every rank has the whole model.
inline void layered_gradients(const LayeredRun& run, int64_t step, Comm& comm, LayeredModel& model,
                              Zero* zero) {
  model.parameters.zero_grad();
  std::vector<std::unique_ptr<Tape>> tapes;
  std::vector<Tensor> y;
  for (int64_t pass = 0; pass < run.passes; ++pass) {
    tapes.push_back(std::make_unique<Tape>());
    y.push_back(model.forward(rows_of(step, comm.rank(), model.in, 2 * uint64_t(pass))));
    if (!zero) continue;
    zero->end_forward();
    if (run.after_forward) run.after_forward(model, *zero);
  }
  for (int64_t pass = run.passes - 1; pass >= 0; --pass) {
    if (zero) zero->last_micro_batch = pass == 0;
    tapes[size_t(pass)]->backward(y[size_t(pass)],
                                  rows_of(step, comm.rank(), model.out, 2 * uint64_t(pass) + 1));
    if (!zero) continue;
    zero->end_backward();
    if (run.after_backward) run.after_backward(model, *zero);
  }
  if (!zero) sum_gradients(comm, model.parameters);
}

// The result that ZeRO must equal: whole gradients are summed, which data_parallel_test.cpp compares with one
// rank.
inline Weights layered_with_sums(const LayeredRun& run) {
  Weights weights;
  run_cluster({.ranks = run.ranks, .seed = 3}, [&](Comm& comm) {
    LayeredModel model(Allocate::Now);
    run.declare(model);
    for (Parameter& p : model.parameters) p.assign(first_values(p));
    Sgd optimizer(model.parameters, {.momentum = 0.9f});
    for (int64_t step = 0; step < run.steps; ++step) {
      layered_gradients(run, step, comm, model, nullptr);
      optimizer.step(0.01);
    }
    weights = weights_of(model.parameters);
  });
  return weights;
}

// Such a model, sharded.
struct ShardedLayers {
  LayeredModel model{Allocate::Later};
  std::unique_ptr<Zero> zero;
  ShardedLayers(Comm& comm, const ZeroArgs& args, const Declare& declare = declare_five) {
    declare(model);
    zero = std::make_unique<Zero>(comm, model.parameters, args);
    for (Parameter& p : model.parameters) zero->assign(p, first_values(p));
  }
};

inline void layered_with_zero(const LayeredRun& run, Comm& comm, const ZeroArgs& args,
                              const std::function<void(LayeredModel&, Zero&)>& inspect) {
  ShardedLayers sharded(comm, args, run.declare);
  LayeredModel& model = sharded.model;
  Zero& zero = *sharded.zero;
  Sgd optimizer(zero.shards, {.momentum = 0.9f});
  for (int64_t step = 0; step < run.steps; ++step) {
    layered_gradients(run, step, comm, model, &zero);
    optimizer.step(0.01);
    if (run.after_update) run.after_update(model, zero);
  }
  inspect(model, zero);
}

inline void expect_layered_trains(
    const LayeredRun& run, const ZeroArgs& args,
    const std::function<void(LayeredModel&, Zero&)>& inspect = [](LayeredModel&, Zero&) {}) {
  const Weights expected = layered_with_sums(run);
  run_cluster({.ranks = run.ranks, .seed = 3}, [&](Comm& comm) {
    layered_with_zero(run, comm, args, [&](LayeredModel& model, Zero& zero) {
      inspect(model, zero);
      expect_weights(model.parameters, expected, "stage " + std::to_string(args.stage));
    });
  });
}

// "a" of "a.weight"
inline std::string unit_per_layer(const Parameter& p) { return p.name.substr(0, p.name.find('.')); }

}  // namespace gradus
