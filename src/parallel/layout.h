// A layout of ranks: how many share the layers of a model (pipeline), the batch (data), the weights of a
// layer (tensor) and the tokens of a sequence (context). Each direction is a group of ranks.
#pragma once
#include <memory>
#include <string>

#include "src/parallel/pipeline.h"
#include "src/parallel/tensor_parallel.h"
#include "src/parallel/zero.h"

namespace gradus {

// As counts: ranks in each direction. As a place: a rank's number in each of them. Ranks are numbered so that
// those that send most are neighbors: tensor, then context, data, and pipeline last (Narayanan et al. 2021,
// sec. 3).
struct Layout {
  int64_t pipeline = 1, data = 1, tensor = 1, context = 1;
  int64_t ranks() const { return pipeline * data * tensor * context; }
  Layout place_of(int64_t rank) const;
  std::string text() const;  // "p2 d2 t2 c1"
};

// The groups of one rank. All ranks make theirs together; an error unless there are as many as in the layout.
struct LayoutGroups {
  LayoutGroups(Comm& all, const Layout& layout);
  Layout place;  // of this rank
  std::unique_ptr<Comm> pipeline, tensor, context;
  // Ranks with the same weights and different tokens, whose gradients are added up: of all data and context
  // ranks.
  std::unique_ptr<Comm> replicas;
};

// What a rank has of a model, and how its gradients become those of the whole batch. The optimizer's states
// are divided among the replicas (ZeRO-1).
struct RankModel {
  // ends: the chunks of the pipeline (cut_blocks).
  RankModel(Comm& all, const Layout& layout, const TransformerConfig& config,
            const std::vector<int64_t>& ends, Sequence sequence = Sequence::Whole);
  void initialize(uint64_t seed);
  // Of a batch that all ranks know this rank's tokens, in `count` micro-batches.
  std::vector<TextBatch> micro_batches(const TextBatch& batch, int64_t count) const;
  // Forward and backward of a step; returns the loss, on all ranks. `micro_batches`: this rank's; `targets`:
  // of the whole batch.
  double run(const Schedule& schedule, const std::vector<TextBatch>& micro_batches, int64_t targets);

  const Layout layout;
  LayoutGroups groups;
  Transformer model;
  TensorParallel tensor;
  Pipeline pipeline;
  Zero zero;  // its shards are what an optimizer is for
};

}  // namespace gradus
