// Tensor parallelism: ranks divide each layer of a transformer. In each block a rank has some heads of
// attention and some neurons of the MLP: rows of the first product's weight and columns of the second's, so
// that nothing is sent between the two (Shoeybi et al. 2019, "Megatron-LM", sec. 3); of the vocabulary's
// embedding it has some rows.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"
#include "src/parallel/sharded_grad_norm.h"

namespace gradus {

// Sequence parallelism (Korthikanti et al. 2023, "Reducing activation recomputation in large transformer
// models", sec. 4.2): a rank has only some tokens of the norms, dropouts and residuals between the products.
enum class Sequence : uint8_t {
  Whole,         // all ranks have all tokens
  KeepGathered,  // each rank has a part; the first products keep their gathered input for backward
  GatherAgain,   // ... keep the part, and gather a second time in backward
};

class TensorParallel {
 public:
  // Allocates memory for this rank's parts of the weights, or, with when = Allocate::Later, leaves that and
  // the gradient norm to Zero; a model made with Allocate::Later never has memory for the whole. The model
  // has a loss(), but no logits(), because each rank has a part of them. Errors: a number of ranks that does
  // not divide the heads, or is too large for the vocabulary; grouped heads; experts; loss_rows; a model that
  // is sharded already or has adapters.
  TensorParallel(Comm& ranks, Transformer& model, Sequence sequence = Sequence::Whole,
                 Allocate when = Allocate::Now);
  TensorParallel(const TensorParallel&) = delete;

  // Call this after the last backward pass of a step. With sequence parallelism it sums over the ranks the
  // gradients of the parameters that all ranks have, but each has used with its own tokens only. Without, it
  // does nothing.
  void sum_gradients();

 private:
  Comm& ranks_;
  Transformer& model_;
  Sequence sequence_;
  std::optional<ShardedGradNorm> norm_;
};

}  // namespace gradus
