// One device that does what N ranks do in context parallelism: a model for each, with the same weights, of
// which each computes on its chunks; attention merges the same blocks in the same order, gradients are added
// up in rank order.
#pragma once
#include "lessons/19_tensor_parallel/runs.h"

namespace gradus {

TokensRun train_in_chunks(const Loader& loader, const ParallelTask& task, By by, int64_t ranks);

}  // namespace gradus
