// Expert parallelism: ranks share the experts of a mixture out (Lepikhin et al. 2021, "GShard"). A rank has
// its own sequences, as in data parallelism, and the whole of all other layers. What its tokens send to
// experts travels by an all-to-all, and what the experts make of it by another one back.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"
#include "src/parallel/sharded_grad_norm.h"

namespace gradus {

class ExpertParallel {
 public:
  // The model gets memory for this rank's experts and for all of the rest; made with Allocate::Later it never
  // had any for the other experts. All ranks give loss() the same number of sequences, and as `count` the
  // targets of all ranks. Errors, with a sentence: a model without experts, with adapters, or shared out
  // already; ranks that do not divide the experts.
  ExpertParallel(Comm& ranks, Transformer& model);
  ExpertParallel(const ExpertParallel&) = delete;

  // After the last backward pass of a step: adds up, over the ranks, the gradients of what every rank has. An
  // expert's gradient is of all ranks' tokens as it is.
  void sum_gradients();

 private:
  Comm& ranks_;
  Transformer& model_;
  std::optional<ShardedGradNorm> norm_;
};

}  // namespace gradus
