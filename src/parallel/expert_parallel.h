// Expert parallelism: ranks divide the experts of a mixture (Lepikhin et al. 2021, "GShard"). A rank has its
// own sequences, as in data parallelism, and all other layers as a whole. An all-to-all sends tokens to their
// experts, and a second all-to-all returns the experts' outputs.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"
#include "src/parallel/sharded_grad_norm.h"

namespace gradus {

class ExpertParallel {
 public:
  // Allocates memory for this rank's experts and all other parameters; a model made with Allocate::Later
  // never has any for the other experts. All ranks give loss() the same number of sequences, and as `count`
  // the number of targets of all ranks. Errors: a model without experts, with adapters, or sharded already; a
  // number of ranks that does not divide the experts.
  ExpertParallel(Comm& ranks, Transformer& model);
  ExpertParallel(const ExpertParallel&) = delete;

  // Call this after the last backward pass of a step: it sums over the ranks the gradients of the parameters
  // that every rank has. An expert's gradient already is that of all ranks' tokens.
  void sum_gradients();

 private:
  Comm& ranks_;
  Transformer& model_;
  std::optional<ShardedGradNorm> norm_;
};

}  // namespace gradus
