// GPT-2, by its configuration, and what it takes to be BERT or GPT-NeoX (bert_neox.cpp) or a mixture of
// experts (mixture.cpp) instead.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "src/nn/layers.h"
#include "src/nn/transformer_config.h"

namespace gradus {

class KvCache;   // kv_cache.h
struct KvLayer;  // what the attention of one block sees of it

// What is before and behind the blocks; another where ranks share the vocabulary or the tokens out
// (parallel/tensor_parallel.h, context_parallel.h).
struct ModelEnds {
  virtual ~ModelEnds() = default;
  int64_t token_part = 0, token_parts = 1;  // which part of each sequence this rank's blocks have
  virtual Tensor embed(const Tensor& table, const Tensor& ids) const { return embedding(table, ids); }
  virtual Tensor before_blocks(const Tensor& x) const { return x; }  // what this rank's blocks get of x
  virtual Tensor after_blocks(const Tensor& x) const { return x; }   // all of it again
  virtual Tensor logits(const Tensor& x, const Tensor& weight) const { return linear(x, weight); }
  virtual Tensor loss(const Tensor& x, const Tensor& weight, const Tensor& targets,
                      const Tensor& count) const {
    return cross_entropy(logits(x, weight), targets, count);
  }
};
// What is added to x in place of the first rows of the table of learned positions.
struct PositionVariant {
  virtual ~PositionVariant() = default;
  virtual Tensor operator()(const Tensor& x, const Tensor& table) const = 0;
};
// What a block computes in place of the configured attention.
struct AttentionVariant {
  virtual ~AttentionVariant() = default;
  virtual Tensor operator()(const Tensor& qkv, const TransformerConfig& c) const = 0;
};

// What a block of a mixture did in its last forward pass: the router's logits (B,T,E), and who went where.
struct Routed {
  Tensor logits;
  Routing routing;
};

struct TransformerBlock {
  static constexpr int64_t kDropouts = 3;                    // calls of dropout
  static int64_t parameters_of(const TransformerConfig& c);  // tensors
  TransformerBlock(Parameters& p, const std::string& name, const TransformerConfig& c);
  // past: for attention alone, when text is generated with a cache (lesson 04).
  Tensor operator()(const Tensor& x, const TransformerConfig& c, KvLayer* past = nullptr) const;
  // Of BERT and of GPT-NeoX: bert_neox.cpp.
  Tensor post_norm(const Tensor& x, const TransformerConfig& c, KvLayer* past) const;
  Tensor parallel(const Tensor& x, const TransformerConfig& c, KvLayer* past) const;
  Tensor mixture(const Tensor& x, const TransformerConfig& c, KvLayer* past) const;  // mixture.cpp
  // Attention as configured: qkv (B,T,3C) -> (B,T,C), or of the heads that this rank has. With a `past`, the
  // tokens in it take part.
  Tensor attend(const Tensor& qkv, const TransformerConfig& c, KvLayer* past) const;
  std::string name;  // of its range, and the beginning of its parameters'
  Norm ln_1;
  Linear c_attn, c_proj;  // (3C, C): q, k and v in one product; (C, C)
  Norm ln_2;
  Linear c_fc, mlp_c_proj;       // (4C, C) and (C, 4C); or as many of them as there are experts
  std::optional<Linear> router;  // (E, C), of a mixture
  mutable std::optional<Routed> routed = {};
  std::unique_ptr<AttentionVariant> attention = {};
  int64_t token_part = 0;  // as of ModelEnds

 private:
  // The masks that these tokens have in the whole sequence.
  Tensor dropout(const Tensor& x, double p) const {
    return gradus::dropout(x, p, token_part * x.shape()[1] * x.last());
  }
};

// What the tape keeps of some blocks that follow each other (lesson 08).
enum class Keep : uint8_t {
  All,            // what each op saves
  LessAttention,  // all but what attention itself makes: its probabilities (Korthikanti et al. 2023, sec. 5)
  Input,          // the first one's input: they run again together
};
struct BlockSegment {
  int64_t blocks;
  Keep keep;
};

// A part of a model: one or more ranges of its blocks, in order, with or without what is before and behind
// all blocks. The parts of a model draw what the whole would, first weights and dropout masks; a tied
// embedding is in the part with the embedding and, once more, in that with the head.
struct BlockRange {
  int64_t first = 0, end = INT64_MAX;  // blocks [first, end) of those that there are
};
struct ModelPart {
  std::vector<BlockRange> ranges = {{}};
  bool embedding = true, head = true;
};

class Transformer {
 public:
  // Allocates the parameters without writing to them. They are named as GPT-2's published files name them;
  // what GPT-2 does not have: wtt (token types), ln_e (the norm of the embedding), lm_head, pooler,
  // classifier.
  explicit Transformer(const TransformerConfig& config, Allocate allocate = Allocate::Now,
                       const ModelPart& part = {});
  // GPT-2's: normal with standard deviation 0.02, on the residual projections 0.02/sqrt(2L) (BERT's: 0.02
  // there too); biases 0, gains 1. Drawn on the host, one counter-based stream a parameter, so the same on
  // every device.
  void initialize(uint64_t seed, const AssignValues& assign = &Parameter::assign);

  std::vector<Linear*> linears();  // in the order in which they are applied

  // ids: int32 (B,T), T <= context; types: int32 (B,T), for models with token types. The result: see
  // OutputHead.
  Tensor logits(const Tensor& ids, const Tensor& types = {}) const;
  // The logits (B,V) of what follows the last token. ids: int32 (B,T), the tokens that come after those in
  // the cache; their keys and values are added to it. Either T of them into an empty cache (the prompt) or,
  // from then on, one of each sequence. Nothing is dropped and nothing recorded. An error leaves the cache as
  // it was.
  Tensor next_logits(const Tensor& ids, KvCache& cache) const;
  // logits() in three steps, for parts: each takes what the one before has made, (B,T,C).
  Tensor embed(const Tensor& ids, const Tensor& types = {}, int64_t first_position = 0) const;
  Tensor through_blocks(Tensor x, size_t range = 0) const;  // of one range of the part
  Tensor head(const Tensor& x) const;
  Tensor head_loss(const Tensor& x, const Tensor& targets, const Tensor& count = {}) const;  // as loss()
  // What head() applies: the norm, if it is behind the blocks, and the (V,C) weight, if there are logits for
  // tokens.
  const Norm& last_norm() const { return *norm_; }
  const Tensor& head_weight() const;
  // Mean cross-entropy in nats: targets are int32 (B,T) tokens, or (B) labels; -1 does not count. With
  // `count`, one number: a micro-batch's share of the mean over so many targets. Outside an Evaluation a
  // mixture adds the balance loss of each block.
  Tensor loss(const Tensor& ids, const Tensor& targets, const Tensor& types = {},
              const Tensor& count = {}) const;

  const TransformerConfig config;  // of the whole model
  const ModelPart part;
  Parameters parameters;
  std::vector<TransformerBlock> blocks;  // of this part
  // How the blocks are cut, in order; empty: all is kept. Losses and gradients do not depend on it.
  std::vector<BlockSegment> segments;
  std::unique_ptr<ModelEnds> ends = std::make_unique<ModelEnds>();
  std::unique_ptr<PositionVariant> positions = {};
  // Only the input of the first block is kept, and every block's is made from it: the least memory.
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
  std::optional<Norm> norm_;  // ln_f, the last, or ln_e, that of the embedding
  std::optional<Embedding> lm_head_;
  std::optional<Linear> pooler_, classifier_;
};

}  // namespace gradus
