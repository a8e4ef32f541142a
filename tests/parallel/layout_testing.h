// For tests of layouts: a model's training on one device and by the ranks of a layout.
#pragma once
#include <map>

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/layout.h"
#include "src/train/dummy.h"
#include "tests/refusal_testing.h"

namespace gradus {

using WeightsByName = std::map<std::string, std::vector<double>>;

struct LayoutSetting {
  std::string name;
  TransformerConfig model;
  int64_t steps = 2, sequences = 8, micro_batches = 2, chunks_per_rank = 1;
  double max_norm = 0.1, rate = 0.5;
  Sequence sequence = Sequence::Whole;
  std::string device = "cpu";
  std::function<std::unique_ptr<Optimizer>(Parameters&)> make = [](Parameters& p) {
    return std::make_unique<Sgd>(p);
  };
  int64_t targets() const { return sequences * model.context; }
};
inline TransformerConfig gpt_of_layouts(double dropout = 0) {
  return {.vocab = 30, .context = 8, .layers = 4, .heads = 4, .channels = 16, .dropout = dropout};
}
inline TransformerConfig neox_of_layouts(double dropout = 0) {
  TransformerConfig c = gpt_of_layouts(dropout);
  c.residual = Residual::Parallel, c.output_head = OutputHead::Untied, c.activation = gelu_erf, c.rotary = 2;
  return c;
}

inline TextBatch batch_of(const LayoutSetting& set, int64_t step) {
  Rng rng(uint64_t(step), 5);
  TextBatch b{set.sequences, set.model.context, {}, {}, 0};
  for (std::vector<int32_t>* ids : {&b.ids, &b.targets})
    for (int64_t i = 0; i < set.targets(); ++i) ids->push_back(int32_t(rng.below(uint64_t(set.model.vocab))));
  return b;
}

struct LayoutEnd {
  std::vector<double> losses, norms;
  WeightsByName weights;
};

inline LayoutEnd train_plainly(const LayoutSetting& set) {
  Context context(set.device, 7);
  Transformer model(set.model);
  model.initialize(3);
  const auto optimizer = set.make(model.parameters);
  LayoutEnd end;
  for (int64_t step = 0; step < set.steps; ++step) {
    const TextBatch b = batch_of(set, step);
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = model.loss(on_device(b.ids, b.T, "ids"), on_device(b.targets, b.T, "targets"));
    tape.backward(loss);
    if (set.max_norm > 0) optimizer->clip_grad_norm(set.max_norm);
    end.norms.push_back(optimizer->scalars().grad_norm);
    optimizer->step(set.rate);
    end.losses.push_back(item(loss));
  }
  for (const Parameter& p : model.parameters) end.weights[p.name] = to_host<double>(p.kept());
  return end;
}

// A rank's part of a model, and its optimizer.
struct TrainedRank {
  const LayoutSetting& set;
  RankModel rank;
  std::unique_ptr<Optimizer> optimizer;
  Schedule schedule;
  TrainedRank(const LayoutSetting& set, Comm& comm, const Layout& layout)
      : set(set),
        rank(comm, layout, set.model, even_cuts(set.model.layers, layout.pipeline * set.chunks_per_rank),
             set.sequence),
        schedule(interleaved_or_not(layout)) {
    rank.initialize(3);
    optimizer = set.make(rank.zero.shards);
  }
  Schedule interleaved_or_not(const Layout& l) const {
    return set.chunks_per_rank > 1 ? interleaved(l.pipeline, set.micro_batches, set.chunks_per_rank)
                                   : one_forward_one_backward(l.pipeline, set.micro_batches);
  }
  LayoutEnd train(int64_t first_step, int64_t end_step) {
    LayoutEnd end;
    for (int64_t step = first_step; step < end_step; ++step) {
      rank.model.parameters.zero_grad();
      const std::vector<TextBatch> own = rank.micro_batches(batch_of(set, step), set.micro_batches);
      end.losses.push_back(rank.run(schedule, own, set.targets()));
      if (set.max_norm > 0) optimizer->clip_grad_norm(set.max_norm);
      end.norms.push_back(optimizer->scalars().grad_norm);
      optimizer->step(set.rate);
    }
    for (const Parameter& p : rank.model.parameters) end.weights[p.name] = to_host<double>(p.value);
    return end;
  }
};
inline void by_layout(const LayoutSetting& set, const Layout& layout,
                      const std::function<void(Comm&, TrainedRank&)>& f) {
  run_cluster({.ranks = layout.ranks(), .device = set.device, .seed = 7}, [&](Comm& comm) {
    TrainedRank rank(set, comm, layout);
    f(comm, rank);
  });
}

inline double norm_of_all(const std::vector<double>& x) {
  double sum = 0;
  for (const double a : x) sum += a * a;
  return std::sqrt(sum);
}

// All layouts with this number of ranks that can compute the model, and for which the batch has enough
// sequences.
inline std::vector<Layout> layouts_of(int64_t ranks, const LayoutSetting& set) {
  const TransformerConfig& c = set.model;
  std::vector<Layout> all;
  for (int64_t p = 1; p <= ranks; ++p)
    for (int64_t d = 1; d <= ranks; ++d)
      for (int64_t t = 1; t <= ranks; ++t)
        for (int64_t x = 1; x <= ranks; ++x) {
          const Layout l{p, d, t, x};
          const bool context = x == 1 || (c.rotary == 0 && c.dropout == 0 && c.context % (2 * x) == 0);
          const bool sequence = set.sequence == Sequence::Whole || (c.context / x) % t == 0;
          if (l.ranks() == ranks && p * set.chunks_per_rank <= c.layers && c.heads % t == 0 && context &&
              sequence && set.sequences % (d * set.micro_batches) == 0 &&
              (set.chunks_per_rank == 1 || (p > 1 && set.micro_batches % p == 0)))
            all.push_back(l);
        }
  return all;
}

}  // namespace gradus
