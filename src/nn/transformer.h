// A transformer. Its configuration makes it GPT-2, BERT or GPT-NeoX (bert_neox.cpp), or a mixture of experts
// (mixture.cpp).
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "src/nn/layers.h"
#include "src/nn/transformer_config.h"

namespace gradus {

class KvCache;   // kv_cache.h
struct KvLayer;  // the cache as one block's attention sees it

// The computation before and after the blocks. It is replaced if the vocabulary or the tokens are sharded
// over ranks (parallel/tensor_parallel.h, context_parallel.h).
struct ModelEnds {
  virtual ~ModelEnds() = default;
  int64_t token_part = 0, token_parts = 1;  // this rank's part of each sequence; the number of parts
  virtual Tensor embed(const Tensor& table, const Tensor& ids) const { return embedding(table, ids); }
  virtual Tensor before_blocks(const Tensor& x) const { return x; }  // this rank's part of x
  virtual Tensor after_blocks(const Tensor& x) const { return x; }   // x of all ranks
  virtual Tensor logits(const Tensor& x, const Tensor& weight) const { return linear(x, weight); }
  virtual Tensor loss(const Tensor& x, const Tensor& weight, const Tensor& targets,
                      const Tensor& count) const {
    return cross_entropy(logits(x, weight), targets, count);
  }
};
// Replaces the addition of learned positions (the first rows of the table) to x.
struct PositionVariant {
  virtual ~PositionVariant() = default;
  virtual Tensor operator()(const Tensor& x, const Tensor& table) const = 0;
};
// Replaces the configured attention of a block.
struct AttentionVariant {
  virtual ~AttentionVariant() = default;
  virtual Tensor operator()(const Tensor& qkv, const TransformerConfig& c) const = 0;
};

// The last forward pass of a block of a mixture: the router's logits (B,T,E), and the experts of each token.
struct Routed {
  Tensor logits;
  Routing routing;
};

struct TransformerBlock {
  static constexpr int64_t kDropouts = 3;                    // calls of dropout per block
  static int64_t parameters_of(const TransformerConfig& c);  // parameter tensors per block
  TransformerBlock(Parameters& p, const std::string& name, const TransformerConfig& c);
  // past: the cache, when text is generated with one (lesson 04); only attention uses it.
  Tensor operator()(const Tensor& x, const TransformerConfig& c, KvLayer* past = nullptr) const;
  // The blocks of BERT and of GPT-NeoX: bert_neox.cpp.
  Tensor post_norm(const Tensor& x, const TransformerConfig& c, KvLayer* past) const;
  Tensor parallel(const Tensor& x, const TransformerConfig& c, KvLayer* past) const;
  Tensor mixture(const Tensor& x, const TransformerConfig& c, KvLayer* past) const;  // mixture.cpp
  // The configured attention: qkv (B,T,3C) -> (B,T,C), or only the heads of this rank. With a `past`, the
  // queries also read its keys and values.
  Tensor attend(const Tensor& qkv, const TransformerConfig& c, KvLayer* past) const;
  std::string name;  // of its profile range; the names of its parameters begin with it
  Norm ln_1;
  Linear c_attn, c_proj;  // (3C, C): q, k and v in one product; (C, C)
  Norm ln_2;
  Linear c_fc, mlp_c_proj;       // (4C, C) and (C, 4C); in a mixture one of each per expert
  std::optional<Linear> router;  // (E, C), only in a mixture
  mutable std::optional<Routed> routed = {};
  std::unique_ptr<AttentionVariant> attention = {};
  int64_t token_part = 0;  // as in ModelEnds

 private:
  // Dropout with the masks that these tokens have in the whole sequence.
  Tensor dropout(const Tensor& x, double p) const {
    return gradus::dropout(x, p, token_part * x.shape()[1] * x.last());
  }
};

// Which tensors of consecutive blocks the tape saves (lesson 08).
enum class Keep : uint8_t {
  All,            // all tensors that the ops save
  LessAttention,  // all but the attention probabilities (Korthikanti et al. 2023, sec. 5)
  Input,          // only the input of the first block; the blocks are recomputed together
};
struct BlockSegment {
  int64_t blocks;
  Keep keep;
};

// A part of a model: one or more ranges of its blocks, in order, with or without the embedding and the head.
// The parts draw the same initial weights and dropout masks as the whole model. A tied embedding is in the
// part with the embedding and also in the part with the head.
struct BlockRange {
  int64_t first = 0, end = INT64_MAX;  // blocks [first, min(end, layers))
};
struct ModelPart {
  std::vector<BlockRange> ranges = {{}};
  bool embedding = true, head = true;
};

class Transformer {
 public:
  // Allocates the parameters without writing to them. Their names are those in GPT-2's published files. GPT-2
  // does not have: wtt (token types), ln_e (the norm of the embedding), lm_head, pooler, classifier.
  explicit Transformer(const TransformerConfig& config, Allocate allocate = Allocate::Now,
                       const ModelPart& part = {});
  // GPT-2's initialization: normal with standard deviation 0.02, on the residual projections 0.02/sqrt(2L)
  // (BERT: 0.02 there, too); biases 0, gains 1. The values are drawn on the host, with one counter-based
  // stream per parameter, so they are the same on every device.
  void initialize(uint64_t seed, const AssignValues& assign = &Parameter::assign);

  std::vector<Linear*> linears();  // in the order in which they are applied

  // ids: int32 (B,T), T <= context; types: int32 (B,T), for models with token types. The result: see
  // OutputHead.
  Tensor logits(const Tensor& ids, const Tensor& types = {}) const;
  // The logits (B,V) of the token after the last one. ids: int32 (B,T), the tokens that follow those in the
  // cache; their keys and values are added to it. T is 1, unless the cache is empty (the prompt). Dropout is
  // off, and no tape records. After an error the cache is as before.
  Tensor next_logits(const Tensor& ids, KvCache& cache) const;
  // logits() in three steps, for parts of a model: each step takes the result (B,T,C) of the step before.
  Tensor embed(const Tensor& ids, const Tensor& types = {}, int64_t first_position = 0) const;
  Tensor through_blocks(Tensor x, size_t range = 0) const;  // through one range of the part
  Tensor head(const Tensor& x) const;
  Tensor head_loss(const Tensor& x, const Tensor& targets, const Tensor& count = {}) const;  // see loss()
  // What head() applies: the norm, if it stands after the blocks, and the weight (V,C), if the logits are
  // for tokens.
  const Norm& last_norm() const { return *norm_; }
  const Tensor& head_weight() const;
  // Mean cross-entropy in nats. targets: int32, tokens (B,T) or labels (B); a target of -1 is padding and is
  // ignored. With `count`, one number: the share of a micro-batch of the mean over `count` targets. Outside
  // an Evaluation a mixture adds the balance loss of each block.
  Tensor loss(const Tensor& ids, const Tensor& targets, const Tensor& types = {},
              const Tensor& count = {}) const;

  const TransformerConfig config;  // of the whole model
  const ModelPart part;
  Parameters parameters;
  std::vector<TransformerBlock> blocks;  // the blocks of this part
  // Segments that cover the blocks, in order; empty: the tape saves everything. Losses and gradients do not
  // depend on them.
  std::vector<BlockSegment> segments;
  std::unique_ptr<ModelEnds> ends = std::make_unique<ModelEnds>();
  std::unique_ptr<PositionVariant> positions = {};
  // The least memory: the tape saves only the input of the first block and recomputes each block's from it.
  bool from_the_start = false;

 private:
  void check_inputs(const Tensor& ids, const Tensor& types) const;
  Tensor with_positions(const Tensor& x, int64_t first) const;
  Tensor through_all(Tensor x) const;
  Tensor through_segments(Tensor x, BlockRange own) const;
  Tensor up_to_block(int64_t first, int64_t block, const Tensor& x) const;
  Tensor before_head(const Tensor& x) const;
  Tensor pooled_head(const Tensor& x) const;
  void add_output_head();
  Tensor with_balance(Tensor loss, const Tensor& count) const;

  std::optional<Embedding> wte_, wpe_, wtt_;
  std::optional<Norm> norm_;  // ln_f, after the blocks, or ln_e, after the embedding
  std::optional<Embedding> lm_head_;
  std::optional<Linear> pooler_, classifier_;
};

}  // namespace gradus
