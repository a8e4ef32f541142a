// One device that adds as ranks do: what they must equal to the bit.
#pragma once
#include "lessons/19_tensor_parallel/runs.h"

namespace gradus {

// From now on the model adds t partial products, in rank order, where t ranks of tensor parallelism would.
// All else is as in ordinary training.
void add_in_parts(Transformer& model, int64_t t);

// What `ranks` ranks of context parallelism do: a model for each, with the same weights, that computes on its
// chunks; attention merges the same blocks in the same order, gradients are added up in rank order.
std::vector<Tensor> block_in_chunks(const std::vector<Transformer*>& models, size_t l,
                                    const std::vector<Tensor>& x);
Tensor embed_chunk(Transformer& model, const TextBatch& own, int64_t T, int64_t rank, int64_t ranks);
TokensRun train_in_chunks(const Loader& loader, const ParallelTask& task, By by, int64_t ranks);

}  // namespace gradus
