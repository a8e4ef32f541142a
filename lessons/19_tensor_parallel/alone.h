// Reference runs on one device. They add in the same order as the ranks, so both must be bitwise equal.
#pragma once
#include "lessons/19_tensor_parallel/runs.h"

namespace gradus {

// From now on the model adds t partial products in rank order where t ranks of tensor parallelism add them.
void add_in_parts(Transformer& model, int64_t t);

// Trains as `ranks` ranks of context parallelism do, with a model for each rank's chunks, all of equal
// weights. Attention merges the chunks in the order of the ring; gradients are added in rank order.
TokensRun train_in_chunks(const Loader& loader, const ParallelTask& task, By by, int64_t ranks);
// Its loss of a micro-batch, with the output heads of `heads`. Each rank's loss is added to `losses`.
Tensor loss_in_chunks(const std::vector<Transformer*>& models, const std::vector<Transformer*>& heads,
                      const TextBatch& batch, const Tensor& count, std::vector<double>& losses);

}  // namespace gradus
