// attention, for each sample and head: P = softmax(scale q k^T + mask), y = dropout(P) v, scale = 1/sqrt(D)
// (Vaswani et al. 2017, eq. 1). q, k, v lie packed in qkv (B, T, 3C): C columns each, head h at h·D of them.
// dv = dropout(P)^T dy;  dP = dropout(dy v^T);  dS = P (dP - rowsum(P dP));  dq = scale dS k;  dk = scale
// dS^T q. saves: qkv and the probabilities P (B, H, T, T).
#include <cmath>

#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

static CBuf part(const CBuf& b, int64_t elements) {
  return {static_cast<const char*>(b.p) + elements * size_of(b.t), b.t};
}
static Out part(const Out& o, int64_t elements) {
  return {o.p ? static_cast<char*>(o.p) + elements * size_of(o.t) : nullptr, o.t, o.w};
}

Tensor attention(const Tensor& qkv, int64_t heads, Mask mask, double dropout) {
  const ProfileRange range("attention");
  check(qkv.shape().rank() == 3 && heads > 0 && qkv.last() % (3 * heads) == 0, "attention: qkv is ",
        qkv.shape(), " with ", heads, " heads; it must be (B, T, 3C) with C a multiple of the heads");
  check(dropout >= 0 && dropout < 1, "attention: dropout is ", dropout,
        "; it must be at least 0 and below 1");
  const int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.last() / 3, D = C / heads;
  const AttentionShape s{.B = B,
                         .H = heads,
                         .T = T,
                         .D = D,
                         .qkv = {T * 3 * C, D, 3 * C},
                         .y = {T * C, D, C},
                         .scale = 1 / std::sqrt(float(D)),
                         .mask = mask,
                         .dropout = float(dropout),
                         .key = {current().seed, dropout > 0 ? current().dropout_ordinal++ : 0}};
  Tensor y = empty(qkv, {B, T, C}, "attention"), probs = empty(qkv, {B, heads, T, T}, "attention.probs");
  const CBuf in = qkv.in();
  be(qkv).attention_plain_fwd(ctx(qkv, cost::attention_plain_fwd(s, qkv.dtype())), s, in, part(in, C),
                              part(in, 2 * C), probs.set(), y.set());
  return record("attention", {qkv}, {{qkv, needed_by(qkv)}, {probs, needed_by(qkv)}}, y,
                [s, C](const Node& n, const Tensor& dy, Grads& dx) {
                  const CBuf qkv = n.saved[0].in();
                  const Out out = dx.out(0);
                  be(dy).attention_plain_bwd(ctx(dy, cost::attention_plain_bwd(s, dy.dtype())), s, qkv,
                                             part(qkv, C), part(qkv, 2 * C), n.saved[1].in(), dy.in(), out,
                                             part(out, C), part(out, 2 * C));
                });
}

}  // namespace gradus
