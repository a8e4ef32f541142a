// A mixture of experts (Shazeer et al. 2017; Fedus et al. 2022, "Switch Transformers"): the block of GPT-2
// with many MLPs, of which each token takes the few that a router chooses for it.
#include "src/nn/transformer.h"
#include "src/tensor/context.h"

namespace gradus {

Tensor TransformerBlock::mixture(const Tensor& x, const TransformerConfig& c, KvLayer* past) const {
  const Tensor h = add(x, dropout(c_proj(attend(c_attn(ln_1(x)), c, past)), c.dropout)), tokens = ln_2(h);
  const Tensor logits = (*router)(tokens);
  const Routing to = choose_experts(logits, c.chosen, c.expert_capacity(tokens.shape()[1]));
  routed = Routed{logits, to};
  const Tensor rows = mlp_c_proj(c.activation(c_fc(dispatch(tokens, to))));
  return add(h, dropout(combine_experts(rows, to), c.dropout));
}

Tensor Transformer::with_balance(Tensor loss, const Tensor& count) const {
  if (config.experts == 0 || config.balance == 0 || current().evaluates()) return loss;
  for (const TransformerBlock& b : blocks)
    loss = add(loss, balance_loss(b.routed->logits, b.routed->routing, config.balance, count));
  return loss;
}

}  // namespace gradus
