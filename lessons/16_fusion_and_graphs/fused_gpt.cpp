#include "lessons/16_fusion_and_graphs/fused_gpt.h"

namespace gradus {

Tensor fused_loss(const Transformer& model, const Tensor& ids, const Tensor& targets, int64_t rows) {
  const TransformerConfig& c = model.config;
  check(c.residual == Residual::PreNorm && c.dropout == 0 && c.activation == gelu &&
            c.norm == NormKind::Layer && c.experts == 0,
        "fused_loss: the model must be a GPT-2 without dropout");
  // x is the residual stream; `normed` is its norm, the input of the next branch. One kernel computes both.
  Tensor x = model.embed(ids), normed = model.blocks.empty() ? x : model.blocks.front().ln_1(x);
  const auto add_branch = [&](const Tensor& branch, const Norm& next) {
    const std::vector<Tensor> both = add_layernorm(x, branch, next.gamma.value, next.beta->value, next.eps);
    x = both[0], normed = both[1];
  };
  for (size_t l = 0; l < model.blocks.size(); ++l) {
    const TransformerBlock& block = model.blocks[l];
    check(!block.c_fc.variant && block.c_fc.bias, "fused_loss: ", block.c_fc.name,
          " has an adapter or no bias; fuse the model without it");
    const bool last = l + 1 == model.blocks.size();
    add_branch(block.c_proj(block.attend(block.c_attn(normed), c, nullptr)), block.ln_2);
    const Tensor hidden = linear(normed, block.c_fc.weight.value);  // bias_gelu adds the bias
    const Tensor active = bias_gelu(hidden, block.c_fc.bias->value);
    add_branch(block.mlp_c_proj(active), last ? model.last_norm() : model.blocks[l + 1].ln_1);
  }
  return linear_cross_entropy(normed, model.head_weight(), targets, {}, rows);
}

}  // namespace gradus
