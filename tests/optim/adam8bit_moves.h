// How far single updates move single weights, in learning rates, with AdamW's states in 8 bits: compared with
// a shadow, an AdamW in fp32 that gets the same gradients.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "lessons/11_adam8bit/moves.h"
#include "src/core/rng.h"
#include "src/optim/adamw_8bit.h"

namespace gradus {

struct MovesCase {
  std::string shape;  // gpt, bert, neox
  int64_t vocab;
  bool tied;
  int64_t layers = 2, channels = 64, batch = 8, steps = 200;
  int64_t batches = 0;  // different batches, which are repeated; 0: every batch is new
  double rate = 1e-3;
  std::string name() const { return shape + (tied ? ", tied, " : ", untied, ") + std::to_string(vocab); }

  TransformerConfig config() const {
    TransformerConfig c{.vocab = vocab, .context = 32, .layers = layers, .heads = 4, .channels = channels};
    if (shape == "bert")
      c.residual = Residual::PostNorm, c.mask = Mask::None, c.activation = gelu_erf, c.token_types = 2;
    if (shape == "neox") c.residual = Residual::Parallel, c.activation = gelu_erf, c.rotary = 8;
    c.output_head = tied ? OutputHead::Tied : OutputHead::Untied;
    return c;
  }
};

// Tokens of a Zipf distribution and their types. For bert the last token id is the mask: 15 % of the tokens
// are masked, and the model predicts them.
struct MovesBatch {
  Tensor ids, targets, types;
  MovesBatch(const MovesCase& c, const TransformerConfig& config, uint64_t seed, int64_t step) {
    const int64_t T = config.context;
    TextBatch text = zipf_batch(c.batch, T, c.vocab - 1, seed, c.batches > 0 ? step % c.batches : step);
    std::vector<int32_t> type;
    Rng rng(seed, 1'000'000 + uint64_t(step));
    for (size_t i = 0; i < text.ids.size(); ++i) {
      type.push_back(int64_t(i) % T >= T / 2);
      const bool masked = rng.uniform() < 0.15;
      if (c.shape != "bert") continue;
      text.targets[i] = masked ? text.ids[i] : -1;
      if (masked) text.ids[i] = int32_t(c.vocab - 1);
    }
    ids = on_device(text.ids, T, "ids"), targets = on_device(text.targets, T, "targets");
    if (config.token_types > 0) types = on_device(type, T, "token types");
  }
};

struct Moves {
  int64_t count = 0, above_4 = 0, above_8 = 0;
  double largest = 0;
  void add(double learning_rates) {
    ++count, above_4 += !(learning_rates <= 4), above_8 += !(learning_rates <= 8);
    if (learning_rates > largest || std::isnan(learning_rates)) largest = learning_rates;  // a NaN is kept
  }
  void add(const Moves& other) {
    count += other.count, above_4 += other.above_4, above_8 += other.above_8;
    if (other.largest > largest || std::isnan(other.largest)) largest = other.largest;
  }
  double above_4_of_100000() const { return 1e5 * double(above_4) / double(std::max<int64_t>(count, 1)); }
};

// AdamW on the host, with its default arguments. Adds to `moves` how far each element moves, in learning
// rates.
struct Shadow {
  explicit Shadow(int64_t n) : m(size_t(n), 0.0f), v(size_t(n), 0.0f) {}
  void update(const std::vector<float>& g, int64_t n, Moves& moves) {
    const AdamWArgs a;
    const float of_m = 1 - std::pow(a.beta1, float(n)), of_v = 1 - std::pow(a.beta2, float(n));
    for (size_t i = 0; i < g.size(); ++i) {
      m[i] = a.beta1 * m[i] + (1 - a.beta1) * g[i];
      v[i] = a.beta2 * v[i] + (1 - a.beta2) * g[i] * g[i];
      moves.add(double(std::abs(m[i] / of_m) / (std::sqrt(v[i] / of_v) + a.eps)));
    }
  }
  std::vector<float> m, v;
};

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
struct TrainedMoves {
  Moves moves, shadow;   // only tensors whose states are in 8 bits
  double last_loss = 0;  // mean over the last 10 steps
};
// With default arguments AdamW has no weight decay, so a weight moves only by its update.
inline TrainedMoves train_moves(const MovesCase& c, uint64_t seed, const MakeOptimizer& make,
                                bool with_shadow) {
  const Context context("cpu");
  const TransformerConfig config = c.config();
  Transformer model(config);
  model.initialize(seed);
  const std::unique_ptr<Optimizer> optimizer = make(model.parameters);
  std::vector<Shadow> shadows;
  for (const Parameter& p : model.parameters) shadows.emplace_back(with_shadow ? p.value.numel() : 0);
  TrainedMoves all;
  for (int64_t step = 0; step < c.steps; ++step) {
    const MovesBatch batch(c, config, seed, step);
    model.parameters.zero_grad();
    {
      Tape tape;
      const Tensor loss = model.loss(batch.ids, batch.targets, batch.types);
      if (step >= c.steps - 10) all.last_loss += item(loss) / 10;
      tape.backward(loss);
    }
    std::vector<std::vector<float>> before;
    for (const Parameter& p : model.parameters) before.push_back(to_host<float>(p.value));
    optimizer->step(c.rate);
    size_t k = 0;
    for (const Parameter& p : model.parameters) {
      const size_t at = k++;
      if (!AdamW8bit::is_for(p)) continue;
      const std::vector<float> after = to_host<float>(p.value), g = to_host<float>(p.leaf.grad);
      for (size_t i = 0; i < after.size(); ++i)
        all.moves.add(std::abs(double(after[i]) - double(before[at][i])) / c.rate);
      if (with_shadow) shadows[at].update(g, step + 1, all.shadow);
    }
  }
  return all;
}

}  // namespace gradus
