// One device that adds as ranks do: what they must equal to the bit.
#pragma once
#include "lessons/19_tensor_parallel/runs.h"

namespace gradus {

// From now on the model adds t partial products, in rank order, where t ranks of tensor parallelism would.
void add_in_parts(Transformer& model, int64_t t);

// What `ranks` ranks of context parallelism do: a model for each, with the same weights, that computes on its
// chunks; attention merges the same blocks in the same order, gradients are added up in rank order.
TokensRun train_in_chunks(const Loader& loader, const ParallelTask& task, By by, int64_t ranks);
// Its loss of a micro-batch, before backward; `heads` may be other models. Each rank's is added to `losses`.
Tensor loss_in_chunks(const std::vector<Transformer*>& models, const std::vector<Transformer*>& heads,
                      const TextBatch& batch, const Tensor& count, std::vector<double>& losses);

}  // namespace gradus
