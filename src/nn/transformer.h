// A decoder-only transformer (GPT-2: Radford et al. 2019) as a configuration: pre-norm blocks, learned
// positions, GELU, biases everywhere, the output head tied to the token embedding.
#pragma once
#include <string_view>
#include <vector>

#include "src/nn/layers.h"

namespace gradus {

struct TransformerConfig {
  int64_t vocab = 256, context = 64, layers = 4, heads = 4, channels = 128;
  double dropout = 0;  // on embeddings, attention weights and both residual branches
  DType dtype = DType::F32;
  Tensor (*attention)(const Tensor& qkv, int64_t heads, Mask, double dropout) = attention_plain;
  void validate()
      const;  // a sentence for sizes that cannot be: not positive, heads that do not divide channels

  // V C + T C + L (12 C^2 + 13 C) + 2 C
  int64_t parameter_count() const;
  // Per token, forward and backward: 6 N + 12 L C T (Chowdhery et al. 2022, PaLM, appendix B), N =
  // parameter_count().
  int64_t flops_per_token() const;
};
// gpt2, gpt2-medium, gpt2-large, gpt2-xl: vocabulary 50257, context 1024.
TransformerConfig transformer_config(std::string_view name);

struct TransformerBlock {
  TransformerBlock(Parameters& p, const std::string& name, const TransformerConfig& c);
  Tensor operator()(const Tensor& x, const TransformerConfig& c) const;
  LayerNorm ln_1;
  Linear c_attn, c_proj;  // (3C, C): q, k and v in one product; (C, C)
  LayerNorm ln_2;
  Linear c_fc, mlp_c_proj;  // (4C, C) and (C, 4C)
};

class Transformer {
 public:
  // Allocates the parameters (named as GPT-2's published files name them) without writing to them.
  explicit Transformer(const TransformerConfig& config);
  // GPT-2's: normal with standard deviation 0.02, on the residual projections 0.02/sqrt(2L); biases 0,
  // gains 1. Drawn on the host, one counter-based stream a parameter, so the same on every device.
  void initialize(uint64_t seed);

  Tensor logits(const Tensor& ids) const;                       // int32 (B,T) -> (B,T,V); T <= context
  Tensor loss(const Tensor& ids, const Tensor& targets) const;  // mean cross-entropy, nats per token

  const TransformerConfig config;
  Parameters parameters;

 private:
  Embedding wte_, wpe_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm ln_f_;
};

}  // namespace gradus
