// For tests of Llama-shaped models and mixtures of experts on ranks.
#pragma once
#include "src/parallel/expert_parallel.h"
#include "src/parallel/parts.h"
#include "src/parallel/shards.h"
#include "tests/parallel/model_on_ranks.h"

namespace gradus {

inline TransformerConfig llama(int64_t kv_heads = 2, double dropout = 0) {
  return {.vocab = 30,
          .context = 8,
          .layers = 2,
          .heads = 4,
          .channels = 16,
          .dropout = dropout,
          .output_head = OutputHead::Untied,
          .activation = swiglu,
          .rotary = 4,
          .norm = NormKind::Rms,
          .biases = false,
          .kv_heads = kv_heads,
          .mlp_channels = 24};
}
// With capacity_factor 1 some tokens find no place.
inline TransformerConfig mixtral(double dropout = 0, double capacity_factor = 1) {
  TransformerConfig c = llama(2, dropout);
  c.experts = 4, c.capacity_factor = capacity_factor, c.balance = 0.1;
  return c;
}
// GPT-2 with experts: layer norms, learned positions, a tied head.
inline TransformerConfig gpt_of_experts(double dropout = 0) {
  TransformerConfig c = gpt(dropout);
  c.biases = false, c.experts = 8, c.capacity_factor = 1, c.balance = 0.1;
  return c;
}

struct ExpertsOfRanks {
  Transformer model;
  ExpertParallel parallel;
  ExpertsOfRanks(Comm& comm, const TransformerConfig& c, Allocate allocate = Allocate::Later)
      : model(c, allocate), parallel(comm, model) {
    model.initialize(3, &assign_part);
  }
};
// The forward and backward pass of the sequences of a batch that rank `comm.rank()` has.
inline Learned learn_on_rank(const ModelSetting& set, ExpertsOfRanks& m, Comm& comm) {
  const int64_t N = comm.size(), first = comm.rank() * (set.B / N);
  return learn(
      set, m.model, [&] { m.parallel.sum_gradients(); }, first, N);
}

// The ranks' sequences on one device, one rank after the other: each rank's losses, and the sums of the
// gradients in rank order, from a separate buffer per rank.
struct OneAfterAnother {
  std::vector<Values> losses;
  std::map<std::string, Values> gradients;
};
inline OneAfterAnother one_after_another(const ModelSetting& set, int64_t ranks) {
  OneAfterAnother all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Context context(set.device, 7);  // dropout of all ranks is that of the first step
    Transformer model(set.model);
    model.initialize(3);
    const Learned l = learn(
        set, model, [] {}, rank * (set.B / ranks), ranks);
    all.losses.push_back(l.losses);
    for (const auto& [name, g] : l.gradients) {
      Values& sum = all.gradients[name];
      if (rank == 0)
        sum = g;
      else
        for (size_t i = 0; i < g.size(); ++i) sum[i] = double(float(sum[i]) + float(g[i]));
    }
  }
  return all;
}

}  // namespace gradus
