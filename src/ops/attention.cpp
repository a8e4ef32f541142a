// For each sample and head: P = softmax(scale q k^T + mask), y = dropout(P) v, scale = 1/sqrt(D) (Vaswani et
// al. 2017, eq. 1). q, k, v lie packed in qkv (B, T, (H + 2 KV) D): first the H heads of q, D columns each,
// then the KV heads of k, then those of v. Head h of q uses head h / (H/KV) of k and v (Ainslie et al. 2023,
// "GQA"). dv = dropout(P)^T dy;  dP = dropout(dy v^T);  dS = P (dP - rowsum(P dP));  dq = scale dS k;  dk =
// scale dS^T q; dk and dv are summed over the heads of q that share them. attention_plain saves: qkv and the
// probabilities P (B, H, T, T). attention_flash saves: qkv, y and the log-sum-exp of each query (B, H, T),
// from which backward recomputes P.
#include <cmath>

#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

int64_t head_size(const char* op, const Tensor& qkv, Heads heads) {
  const auto [H, KV] = heads;
  check(H > 0 && KV > 0 && H % KV == 0, op, ": qkv is ", qkv.shape(), " with ", H, " heads of queries and ",
        KV, " of keys and values; the first must be a multiple of the second, and both at least 1");
  check(qkv.shape().rank() == 3 && qkv.last() % (H + 2 * KV) == 0, op, ": qkv is ", qkv.shape(), " with ", H,
        " heads of queries and ", KV, " of keys and values; it must be (B, T, (H + 2 KV) D), so ", H + 2 * KV,
        " must divide its last dimension");
  return qkv.last() / (H + 2 * KV);
}

static AttentionShape packed(const char* op, const Tensor& qkv, Heads heads, Mask mask, double p,
                             int64_t first_head) {
  const auto [H, KV] = heads;
  const int64_t D = head_size(op, qkv, heads);
  check(p >= 0 && p < 1, op, ": dropout is ", p, "; it must be at least 0 and below 1");
  check(first_head >= 0, op, ": the first head is ", first_head, "; they count from 0");
  const double dropout = current().evaluates() ? 0 : p;
  const int64_t T = qkv.shape()[1], columns = qkv.last();
  return {.B = qkv.shape()[0],
          .H = H,
          .KV = KV,
          .T = T,
          .D = D,
          .qkv = {T * columns, D, columns},
          .y = {T * H * D, D, H * D},
          .scale = 1 / std::sqrt(float(D)),
          .mask = mask,
          .dropout = float(dropout),
          .key = dropout > 0 ? current().next_dropout_key(first_head * T * T) : RandomKey{}};
}
// The columns of qkv at which k and v begin.
static int64_t k_of(const AttentionShape& s) { return s.H * s.D; }
static int64_t v_of(const AttentionShape& s) { return (s.H + s.KV) * s.D; }

Tensor attention_plain(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head) {
  const ProfileRange range("attention_plain");
  const AttentionShape s = packed("attention_plain", qkv, heads, mask, dropout, first_head);
  Tensor y = empty(qkv, {s.B, s.T, s.H * s.D}, "attention"),
         probs = empty(qkv, {s.B, s.H, s.T, s.T}, "attention.probs");
  const CBuf q = qkv.in();
  be(qkv).attention_plain_fwd(ctx(qkv, cost::attention_plain_fwd(s, qkv.dtype())), s, q, q.from(k_of(s)),
                              q.from(v_of(s)), probs.set(), y.set());
  return record("attention_plain", {qkv}, {{qkv, needed_by(qkv)}, {probs, needed_by(qkv)}}, y,
                [s](const Node& n, const Tensor& dy, Grads& dx) {
                  const CBuf q = n.saved[0].in();
                  const Out dq = dx.out(0);
                  be(dy).attention_plain_bwd(ctx(dy, cost::attention_plain_bwd(s, dy.dtype())), s, q,
                                             q.from(k_of(s)), q.from(v_of(s)), n.saved[1].in(), dy.in(), dq,
                                             dq.from(k_of(s)), dq.from(v_of(s)));
                });
}

Tensor attention_flash(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head) {
  const ProfileRange range("attention_flash");
  const AttentionShape s = packed("attention_flash", qkv, heads, mask, dropout, first_head);
  Tensor y = empty(qkv, {s.B, s.T, s.H * s.D}, "attention"),
         lse = empty(qkv, {s.B, s.H, s.T}, statistics_dtype(qkv.dtype()), "attention.lse");
  const CBuf q = qkv.in();
  be(qkv).attention_flash_fwd(ctx(qkv, cost::attention_flash_fwd(s, qkv.dtype())), s, q, q.from(k_of(s)),
                              q.from(v_of(s)), y.set(), lse.set());
  return record("attention_flash", {qkv}, {{qkv, needed_by(qkv)}, {y, needed_by(qkv)}, {lse, needed_by(qkv)}},
                y, [s](const Node& n, const Tensor& dy, Grads& dx) {
                  const CBuf q = n.saved[0].in();
                  const Out dq = dx.out(0);
                  be(dy).attention_flash_bwd(ctx(dy, cost::attention_flash_bwd(s, dy.dtype())), s, q,
                                             q.from(k_of(s)), q.from(v_of(s)), n.saved[1].in(),
                                             n.saved[2].in(), dy.in(), dq, dq.from(k_of(s)),
                                             dq.from(v_of(s)));
                });
}

}  // namespace gradus
