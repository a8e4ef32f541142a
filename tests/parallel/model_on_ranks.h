// For tests of tensor and context parallelism: a transformer's losses and gradients on one device, and the
// comparison with what each rank has.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "src/core/rng.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

using Values = std::vector<double>;

inline TransformerConfig gpt(double dropout = 0, int64_t vocab = 30) {
  return {.vocab = vocab, .context = 8, .layers = 2, .heads = 4, .channels = 16, .dropout = dropout};
}
inline TransformerConfig bert(double dropout = 0, int64_t labels = 3) {
  return {.vocab = 30,
          .context = 8,
          .layers = 2,
          .heads = 4,
          .channels = 16,
          .dropout = dropout,
          .residual = Residual::PostNorm,
          .output_head = OutputHead::Pooled,
          .mask = Mask::None,
          .activation = gelu_erf,
          .token_types = 2,
          .labels = labels,
          .norm_eps = 1e-12};
}
inline TransformerConfig neox(double dropout = 0) {
  return {.vocab = 30,
          .context = 8,
          .layers = 2,
          .heads = 4,
          .channels = 16,
          .dropout = dropout,
          .residual = Residual::Parallel,
          .output_head = OutputHead::Untied,
          .activation = gelu_erf,
          .rotary = 2};
}

// The batch on the host: ids, targets and types of sequences, or a label per sequence.
struct HostBatch {
  std::vector<int32_t> ids, targets, types;
  int64_t counted() const {
    return std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
  }
};
struct ModelSetting {
  std::string name;
  TransformerConfig model;
  int64_t B = 2, T = 8, micro_batches = 1;
  bool some_do_not_count = false, with_count = false;
  std::vector<BlockSegment> segments = {};
  bool from_the_start = false;
  double max_norm = 1e9;
  std::string device = "cpu";
  std::vector<std::string> frozen = {};
  uint64_t data = 1;  // the seed of ids and targets
  // If ranks divide each sequence: the number of parts, and the function that selects this rank's tokens of a
  // batch.
  int64_t parts = 1;
  std::function<void(HostBatch&)> take_part = {};
};

inline HostBatch batch_of(const ModelSetting& set) {
  HostBatch b;
  const bool pooled = set.model.output_head == OutputHead::Pooled;
  Rng rng(29, set.data);
  for (int64_t i = 0; i < set.B * set.T; ++i) {
    b.ids.push_back(int32_t(rng.below(uint64_t(set.model.vocab))));
    b.types.push_back(int32_t(rng.below(2)));
    if (!pooled) b.targets.push_back(int32_t(rng.below(uint64_t(set.model.vocab))));
  }
  for (int64_t i = 0; pooled && i < set.B; ++i)
    b.targets.push_back(int32_t(rng.below(uint64_t(std::max<int64_t>(set.model.labels, 1)))));
  if (set.some_do_not_count)
    for (size_t i = 1; i < b.targets.size(); i += 3) b.targets[i] = -1;
  return b;
}
inline Tensor rows_of(const std::vector<int32_t>& all, int64_t first, int64_t n, int64_t columns) {
  const std::vector<int32_t> rows(all.begin() + first * columns, all.begin() + (first + n) * columns);
  return from_host(current().device, rows, columns == 1 ? Shape{n} : Shape{n, columns}, DType::I32,
                   Kind::Data, "rows");
}
inline Tensor count_of(int64_t n) {
  return from_host(current().device, Values{double(n)}, {1}, DType::F32, Kind::Data, "count");
}

// The forward and backward pass of sequences [first, first + n). Returns the loss, or, without labels, the
// model's outputs.
inline Values pass(const ModelSetting& set, const Transformer& model, int64_t first, int64_t n) {
  HostBatch b = batch_of(set);
  const int64_t counted = b.counted(), T = set.T / set.parts;
  if (set.take_part) set.take_part(b);
  const TransformerConfig& c = set.model;
  current().first_sample = first;
  const Tensor ids = rows_of(b.ids, first, n, T),
               types = c.token_types > 0 ? rows_of(b.types, first, n, T) : Tensor();
  Tape tape;
  const bool pooled = c.output_head == OutputHead::Pooled;
  if (pooled && c.labels == 0) {
    const Tensor y = model.logits(ids, types);
    Values dy;
    Rng rng(31, uint64_t(first));
    for (int64_t i = 0; i < y.numel(); ++i) dy.push_back(rng.normal());
    const Values values = to_host<double>(y);
    tape.backward(y, from_host(current().device, dy, y.shape(), y.dtype(), Kind::Data, "dy"));
    return values;
  }
  const bool count = set.with_count || set.micro_batches > 1 || set.parts > 1;
  const Tensor loss = model.loss(ids, rows_of(b.targets, first, n, pooled ? 1 : T), types,
                                 count ? count_of(counted) : Tensor());
  const double value = item(loss);
  tape.backward(loss);
  return {value};
}

struct Learned {
  Values losses;
  std::map<std::string, Values> gradients, weights;  // weights: after one step of SGD
  double norm = 0;                                   // of the gradients, before clipping
};
// From the sequences [first, first + B / shares). Calls `sum` after the last backward pass.
inline Learned learn(
    const ModelSetting& set, Transformer& model, const std::function<void()>& sum = [] {}, int64_t first = 0,
    int64_t shares = 1) {
  Learned l;
  model.segments = set.segments;
  model.from_the_start = set.from_the_start;
  for (const std::string& name : set.frozen)
    model.parameters.set_trainable(model.parameters.find(name), false);
  Sgd sgd(model.parameters);
  model.parameters.zero_grad();
  for (int64_t m = 0, n = set.B / shares / set.micro_batches; m < set.micro_batches; ++m)
    for (const double x : pass(set, model, first + m * n, n)) l.losses.push_back(x);
  sum();
  for (const Parameter& p : model.parameters)
    if (p.trainable()) l.gradients[p.name] = to_host<double>(p.leaf.grad);
  sgd.clip_grad_norm(set.max_norm);
  l.norm = sgd.scalars().grad_norm;
  sgd.step(0.1);
  for (const Parameter& p : model.parameters) l.weights[p.name] = to_host<double>(p.kept());
  return l;
}
inline Learned learn_on_one_device(const ModelSetting& set) {
  Context context(set.device, 7);
  Transformer model(set.model);
  model.initialize(3);
  return learn(set, model);
}

inline double norm_of(const Values& x) {
  double sum = 0;
  for (const double a : x) sum += a * a;
  return std::sqrt(sum);
}

struct Allowed {
  double loss = 1e-6, gradient = 2e-6;  // relative to a tensor's norm; 0: bitwise equal
};
// Checks that a rank has these losses, its shards of these gradients and, after the update, its shards of
// these weights.
inline void expect_learned(const Learned& got, const Learned& plain, const Transformer& model,
                           const Allowed& allowed, const std::string& what) {
  ASSERT_EQ(got.losses.size(), plain.losses.size()) << what;
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], plain.losses[i], allowed.loss) << what << ", loss " << i;
  EXPECT_NEAR(got.norm, plain.norm, allowed.gradient * plain.norm) << what << ", the norm of the gradients";
  const auto expect_all = [&](const auto& all, const auto& expected, const std::string& of) {
    EXPECT_EQ(all.size(), expected.size()) << what << ", " << of;
    for (const Parameter& p : model.parameters) {
      if (!all.count(p.name)) continue;
      ASSERT_TRUE(expected.count(p.name)) << what << ", " << of << " of " << p.name;
      const Values& whole = expected.at(p.name);
      const Values own = p.shard ? p.shard->of_values(whole) : whole;
      Values difference = all.at(p.name);
      ASSERT_EQ(difference.size(), own.size()) << what << ", " << of << " of " << p.name;
      for (size_t i = 0; i < own.size(); ++i) difference[i] -= own[i];
      EXPECT_LE(norm_of(difference), allowed.gradient * norm_of(whole))
          << what << ", " << of << " of " << p.name;
    }
  };
  expect_all(got.gradients, plain.gradients, "gradient");
  expect_all(got.weights, plain.weights, "weights after a step");
}

}  // namespace gradus
