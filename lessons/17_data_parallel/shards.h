// What each rank of lesson 17 reads, and the run on one device that all of them together must equal.
#pragma once
#include <string>
#include <vector>

#include "lessons/07_accumulation/accumulate.h"
#include "src/dist/comm.h"

namespace gradus {

struct ParallelTask {
  TransformerConfig model;
  int64_t batch, steps;  // sequences a step, of all ranks together
  uint64_t seed;
  double max_norm = 1, learning_rate = 1e-3;
};

// The sequences of step `step` that a rank reads: as many for each as can be, larger shares first, in the
// order of the batch.
TextBatch read_shard(const Loader& loader, const ParallelTask& task, int64_t step, int64_t rank,
                     int64_t ranks);

// The rank's share of the mean loss over the whole batch; dropout draws the masks that its samples have
// there.
Tensor share_of_loss(const Transformer& model, const ParallelTask& task, const TextBatch& mine);

// The same on all ranks.
double sum_over_ranks(Comm& comm, double mine);

struct OneDevice {
  std::vector<std::vector<double>> weights;  // of each parameter, in the end
  double loss_last;
};
// The same training on one device, which keeps the gradients of each rank in a buffer of their own and adds
// the buffers in rank order. With one rank this is ordinary training.
OneDevice train_on_one_device(const Loader& loader, const ParallelTask& task, int64_t ranks);

}  // namespace gradus
