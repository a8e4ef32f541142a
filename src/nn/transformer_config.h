// A transformer as a configuration. The defaults are GPT-2's (Radford et al. 2019): pre-norm blocks, learned
// positions, GELU, biases everywhere, the output head tied to the token embedding. BERT (Devlin et al. 2019)
// and GPT-NeoX (Black et al. 2022) are other values of the fields from `residual` on.
#pragma once
#include <string_view>

#include "src/nn/precision.h"
#include "src/ops/ops.h"

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
  Pooled,  // of the first token: tanh(pooler(x)) (B,C), and from it `labels` logits (B, labels), if any
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
  int64_t rotary = 0;       // the dimensions of a head that turn with the position; 0: learned positions
  int64_t token_types = 0;  // kinds of tokens (say first and second sentence), with an embedding each
  int64_t labels = 0;
  double norm_eps = 1e-5;
  int64_t loss_rows = 0;  // loss() makes the logits of so many tokens at a time; 0: all at once

  void validate() const;  // a sentence for what cannot be, such as heads that do not divide channels
  // By formula: V C + T C + L (12 C^2 + 13 C) + 2 C for GPT-2.
  int64_t parameter_count() const;
  // Per token, forward and backward: 6 N + 12 L C T (Chowdhery et al. 2022, PaLM, appendix B), N =
  // parameter_count().
  int64_t flops_per_token() const;
};
// gpt2, gpt2-medium, gpt2-large, gpt2-xl, bert-base, bert-large (without labels; with its dropout of 0.1),
// polyglot-ko-1.3b, and a GPT by numbers: gpt-LAYERSxCHANNELSxHEADS with GPT-2's vocabulary and context.
TransformerConfig transformer_config(std::string_view name);

}  // namespace gradus
