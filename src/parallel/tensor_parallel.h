// Tensor parallelism: ranks share a transformer's layers out. Of each block a rank has some heads of
// attention and some neurons of the MLP: rows of the first product's weight, columns of the second's, so that
// nothing travels between the two (Shoeybi et al. 2019, "Megatron-LM", sec. 3); of the vocabulary it has some
// rows.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"
#include "src/parallel/sharded_grad_norm.h"

namespace gradus {

// Sequence parallelism (Korthikanti et al. 2023, "Reducing activation recomputation in large transformer
// models", sec. 4.2): of what lies between the products, norms, dropouts and residuals, a rank has some
// tokens.
enum class Sequence : uint8_t {
  Whole,         // all ranks have all tokens
  KeepGathered,  // a part each; the first products keep their gathered input for backward
  GatherAgain,   // ... keep the part, and gather once more in backward
};

class TensorParallel {
 public:
  // The model gets memory for this rank's parts of the weights, or, with Allocate::Later, leaves that and the
  // norm of the gradients to Zero; made with Allocate::Later it never had any for the whole. It has a loss(),
  // but no logits(), of which each rank has a part. Errors, with a sentence: ranks that do not divide the
  // heads, or that the vocabulary has no parts for; grouped heads; experts; loss_rows; a model that is shared
  // out, or has adapters.
  TensorParallel(Comm& ranks, Transformer& model, Sequence sequence = Sequence::Whole,
                 Allocate when = Allocate::Now);
  TensorParallel(const TensorParallel&) = delete;

  // After the last backward pass of a step, where tokens are in parts: adds up, over the ranks, the gradients
  // of parameters that all have and that each has met with its tokens alone. Otherwise there is nothing to
  // add.
  void sum_gradients();

 private:
  Comm& ranks_;
  Transformer& model_;
  Sequence sequence_;
  std::optional<ShardedGradNorm> norm_;
};

}  // namespace gradus
