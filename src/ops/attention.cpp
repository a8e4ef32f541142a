// For each sample and head: P = softmax(scale q k^T + mask), y = dropout(P) v, scale = 1/sqrt(D) (Vaswani et
// al. 2017, eq. 1). q, k, v lie packed in qkv (B, T, 3C): C columns each, head h at h·D of them.
// dv = dropout(P)^T dy;  dP = dropout(dy v^T);  dS = P (dP - rowsum(P dP));  dq = scale dS k;  dk = scale
// dS^T q.
// attention_plain saves: qkv and the probabilities P (B, H, T, T).
// attention_flash saves: qkv, y and the log-sum-exp of each query (B, H, T), from which P is computed anew.
#include <cmath>

#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

static AttentionShape packed(const char* op, const Tensor& qkv, int64_t heads, Mask mask, double p,
                             int64_t first_head) {
  check(qkv.shape().rank() == 3 && heads > 0 && qkv.last() % (3 * heads) == 0, op, ": qkv is ", qkv.shape(),
        " with ", heads, " heads; it must be (B, T, 3C) with C a multiple of the heads");
  check(p >= 0 && p < 1, op, ": dropout is ", p, "; it must be at least 0 and below 1");
  check(first_head >= 0, op, ": the first head is ", first_head, "; they count from 0");
  const double dropout = current().evaluates() ? 0 : p;
  const int64_t T = qkv.shape()[1], C = qkv.last() / 3, D = C / heads;
  return {.B = qkv.shape()[0],
          .H = heads,
          .KV = heads,
          .T = T,
          .D = D,
          .qkv = {T * 3 * C, D, 3 * C},
          .y = {T * C, D, C},
          .scale = 1 / std::sqrt(float(D)),
          .mask = mask,
          .dropout = float(dropout),
          .key = dropout > 0 ? current().next_dropout_key(first_head * T * T) : RandomKey{}};
}

Tensor attention_plain(const Tensor& qkv, int64_t heads, Mask mask, double dropout, int64_t first_head) {
  const ProfileRange range("attention_plain");
  const AttentionShape s = packed("attention_plain", qkv, heads, mask, dropout, first_head);
  const int64_t C = heads * s.D;
  Tensor y = empty(qkv, {s.B, s.T, C}, "attention"),
         probs = empty(qkv, {s.B, heads, s.T, s.T}, "attention.probs");
  const CBuf q = qkv.in();
  be(qkv).attention_plain_fwd(ctx(qkv, cost::attention_plain_fwd(s, qkv.dtype())), s, q, q.from(C),
                              q.from(2 * C), probs.set(), y.set());
  return record("attention_plain", {qkv}, {{qkv, needed_by(qkv)}, {probs, needed_by(qkv)}}, y,
                [s, C](const Node& n, const Tensor& dy, Grads& dx) {
                  const CBuf q = n.saved[0].in();
                  const Out dq = dx.out(0);
                  be(dy).attention_plain_bwd(ctx(dy, cost::attention_plain_bwd(s, dy.dtype())), s, q,
                                             q.from(C), q.from(2 * C), n.saved[1].in(), dy.in(), dq,
                                             dq.from(C), dq.from(2 * C));
                });
}

Tensor attention_flash(const Tensor& qkv, int64_t heads, Mask mask, double dropout, int64_t first_head) {
  const ProfileRange range("attention_flash");
  const AttentionShape s = packed("attention_flash", qkv, heads, mask, dropout, first_head);
  const int64_t C = heads * s.D;
  Tensor y = empty(qkv, {s.B, s.T, C}, "attention"),
         lse = empty(qkv, {s.B, heads, s.T}, statistics_dtype(qkv.dtype()), "attention.lse");
  const CBuf q = qkv.in();
  be(qkv).attention_flash_fwd(ctx(qkv, cost::attention_flash_fwd(s, qkv.dtype())), s, q, q.from(C),
                              q.from(2 * C), y.set(), lse.set());
  return record("attention_flash", {qkv}, {{qkv, needed_by(qkv)}, {y, needed_by(qkv)}, {lse, needed_by(qkv)}},
                y, [s, C](const Node& n, const Tensor& dy, Grads& dx) {
                  const CBuf q = n.saved[0].in();
                  const Out dq = dx.out(0);
                  be(dy).attention_flash_bwd(ctx(dy, cost::attention_flash_bwd(s, dy.dtype())), s, q,
                                             q.from(C), q.from(2 * C), n.saved[1].in(), n.saved[2].in(),
                                             dy.in(), dq, dq.from(C), dq.from(2 * C));
                });
}

}  // namespace gradus
