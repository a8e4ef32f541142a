// The blocks of BERT and GPT-NeoX; GPT-2's is in transformer.cpp.
#include "src/nn/kv_cache.h"

namespace gradus {

Tensor TransformerBlock::attend(const Tensor& qkv, const TransformerConfig& c, KvLayer* past) {
  const int64_t first = past ? past->length : 0;
  const Tensor turned = c.rotary > 0 ? rotary(qkv, c.heads, c.rotary, first) : qkv;
  if (past) past->append(turned);
  return first > 0 ? past->attend(turned, c.heads) : c.attention(turned, c.heads, c.mask, c.dropout);
}

Tensor TransformerBlock::post_norm(const Tensor& x, const TransformerConfig& c, KvLayer* past) const {
  const Tensor heads = attend(c_attn(x), c, past);
  const Tensor h = ln_1(add(x, dropout(c_proj(heads), c.dropout)));
  return ln_2(add(h, dropout(mlp_c_proj(c.activation(c_fc(h))), c.dropout)));
}

Tensor TransformerBlock::parallel(const Tensor& x, const TransformerConfig& c, KvLayer* past) const {
  const Tensor heads = attend(c_attn(ln_1(x)), c, past);
  const Tensor h = add(x, dropout(c_proj(heads), c.dropout));
  return add(h, dropout(mlp_c_proj(c.activation(c_fc(ln_2(x)))), c.dropout));
}

}  // namespace gradus
