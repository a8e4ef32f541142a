// A transformer as a configuration. The defaults are GPT-2's (Radford et al. 2019): pre-norm blocks, learned
// positions, GELU, biases everywhere, the output head tied to the token embedding. BERT (Devlin et al. 2019)
// and GPT-NeoX (Black et al. 2022) differ in the fields from `residual` on, Llama (Touvron et al. 2023) and
// Mixtral (Jiang et al. 2024) also in those from `norm` on.
#pragma once
#include <string_view>

#include "src/nn/layers.h"

namespace gradus {

// Where the norms are, and what the MLP reads.
enum class Residual : uint8_t {
  PreNorm,   // h = x + attention(ln_1(x)), y = h + mlp(ln_2(h)); a last norm after all blocks
  PostNorm,  // h = ln_1(x + attention(x)), y = ln_2(h + mlp(h)); a first norm after the embedding
  Parallel,  // y = x + attention(ln_1(x)) + mlp(ln_2(x)); a last norm after all blocks
};
enum class OutputHead : uint8_t {
  Tied,    // logits (B,T,V) = x wte^T
  Untied,  // logits (B,T,V) = x lm_head^T
  Pooled,  // tanh(pooler(first token)) (B,C), or with labels the logits of a classifier (B, labels)
};

struct TransformerConfig {
  int64_t vocab = 256, context = 64, layers = 4, heads = 4, channels = 128;
  double dropout = 0;  // on embeddings, attention weights, both residual branches and the pooled token
  Precision precision = {};
  Tensor (*attention)(const Tensor& qkv, Heads, Mask, double dropout, int64_t first_head) = attention_plain;

  Residual residual = Residual::PreNorm;
  OutputHead output_head = OutputHead::Tied;
  Mask mask = Mask::Causal;
  Tensor (*activation)(const Tensor&) = gelu;
  int64_t rotary = 0;       // dimensions of a head that are rotated by the position; 0: learned positions
  int64_t token_types = 0;  // kinds of tokens (e.g. first and second sentence); each has an embedding
  int64_t labels = 0;
  double norm_eps = 1e-5;
  int64_t loss_rows = 0;  // loss() computes the logits of this many tokens at a time; 0: all at once

  NormKind norm = NormKind::Layer;
  bool biases = true;                // of the linear layers in blocks
  int64_t kv_heads = 0;              // key and value heads, each for heads / kv_heads query heads; 0: heads
  double rotary_base = kRotaryBase;  // position t rotates pair i by the angle t base^(-2i/rotary)
  int64_t mlp_channels = 0;          // width of the MLP's activations; 0: 4 channels

  // A mixture: each block has `experts` MLPs, and each token chooses `chosen` of them. An expert has
  // expert_capacity() places per sequence; a token that finds no free place skips the expert.
  int64_t experts = 0, chosen = 2;
  double capacity_factor = 0;  // places per expert, relative to an even division; 0: one place per token
  double balance = 0;          // alpha of the balance loss that training adds, once per block

  void validate() const;  // an error if it is impossible, for example heads that do not divide channels
  int64_t heads_per_kv() const { return kv_heads > 0 ? heads / kv_heads : 1; }
  int64_t kv_channels() const { return channels / heads_per_kv(); }      // KV D
  int64_t qkv_channels() const { return channels + 2 * kv_channels(); }  // (H + 2 KV) D
  int64_t hidden_channels() const;                                       // of the MLP, after its activation
  bool gated() const { return activation == swiglu; }  // then the MLP's first product is twice as wide
  int64_t expert_capacity(int64_t T) const;            // in a sequence of T tokens
  // By formula: V C + T C + L (12 C^2 + 13 C) + 2 C for GPT-2.
  int64_t parameter_count() const;
  int64_t active_parameter_count() const;  // used by one token: `chosen` experts per block
  // Per token, forward and backward: 6 N + 12 L C T (Chowdhery et al. 2022, PaLM, appendix B), N =
  // active_parameter_count().
  int64_t flops_per_token() const;
};
// gpt2, gpt2-medium, gpt2-large, gpt2-xl, bert-base, bert-large (without labels; with its dropout of 0.1),
// polyglot-ko-1.3b, llama-2-7b, llama-3-8b, mixtral-8x7b, and a GPT by numbers: gpt-LAYERSxCHANNELSxHEADS
// with GPT-2's vocabulary and context.
TransformerConfig transformer_config(std::string_view name);

}  // namespace gradus
