// A layout of ranks: how many ranks divide the layers of a model (pipeline), the batch (data), the weights of
// a layer (tensor) and the tokens of a sequence (context). A rank is in one group per direction.
#pragma once
#include <memory>
#include <string>

#include "src/parallel/pipeline.h"
#include "src/parallel/tensor_parallel.h"
#include "src/parallel/zero.h"

namespace gradus {

// Either counts (ranks in each direction) or a place (a rank's number in each direction). Ranks are numbered
// so that those that send each other most are neighbors: tensor, then context, data, and pipeline last
// (Narayanan et al. 2021, sec. 3).
struct Layout {
  int64_t pipeline = 1, data = 1, tensor = 1, context = 1;
  int64_t ranks() const { return pipeline * data * tensor * context; }
  Layout place_of(int64_t rank) const;
  std::string text() const;  // "p2 d2 t2 c1"
};

// The groups of one rank. All ranks construct this together; an error unless the layout has that many ranks.
struct LayoutGroups {
  LayoutGroups(Comm& all, const Layout& layout);
  Layout place;  // of this rank
  std::unique_ptr<Comm> pipeline, tensor, context;
  // The data and context ranks: with the same weights and different tokens; their gradients are summed.
  std::unique_ptr<Comm> replicas;
};

// A rank's part of a model, and the sums that make its gradients those of the whole batch. The optimizer's
// states are divided among the replicas (ZeRO-1).
struct RankModel {
  // ends: the chunks of the pipeline (cut_blocks).
  RankModel(Comm& all, const Layout& layout, const TransformerConfig& config,
            const std::vector<int64_t>& ends, Sequence sequence = Sequence::Whole);
  void initialize(uint64_t seed);
  // This rank's tokens, in `count` micro-batches, of a batch that all ranks know.
  std::vector<TextBatch> micro_batches(const TextBatch& batch, int64_t count) const;
  // The forward and backward passes of a step; returns the loss of the whole batch, on all ranks.
  // `micro_batches`: this rank's; `targets`: number of targets in the whole batch.
  double run(const Schedule& schedule, const std::vector<TextBatch>& micro_batches, int64_t targets);

  const Layout layout;
  LayoutGroups groups;
  Transformer model;
  TensorParallel tensor;
  Pipeline pipeline;
  Zero zero;  // make the optimizer for its `shards`
};

}  // namespace gradus
