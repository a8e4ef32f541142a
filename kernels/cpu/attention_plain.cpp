// Attention that saves its probabilities. In forward each (sample, head of queries) is one task, in backward
// each (sample, head of keys), because dk and dv are sums over the heads of queries that share it. A task
// takes blocks of kQueries queries; with a causal mask the products of a block stop at its last key, which
// saves about half of the work.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"

namespace gradus::cpu {

namespace {

constexpr int64_t kQueries = 64;

// A task's share of the workspace: two blocks of rows of scores, the sums of dk and dv, and room for gemm.
template <class S>
struct Share {
  S *scores, *grads, *dk, *dv;
  void* gemm;
  int64_t gemm_size, size;
  Share(const AttentionShape& s, void* at)
      : scores(static_cast<S*>(at)),
        grads(scores + kQueries * s.T),
        dk(grads + kQueries * s.T),
        dv(dk + s.T * s.D),
        gemm(dv + s.T * s.D),
        gemm_size(gemm_bytes<S>(std::max(s.T, s.D))),
        size((gemm_size + 2 * (kQueries + s.D) * s.T * int64_t(sizeof(S)) + 63) / 64 * 64) {}
};

// Calls f(b, h, share) for every sample and each of its heads: of queries (s.H) or of keys (s.KV).
template <class S, class F>
void for_each_head(const Ctx& ctx, const AttentionShape& s, int64_t heads, F f) {
  for_tasks(ctx, "attention_plain", s, s.B * heads, Share<S>(s, nullptr).size,
            [&](int64_t i, void* at) { f(i / heads, i % heads, Share<S>(s, at)); });
}

int64_t keys_of(const AttentionShape& s, int64_t last_query) {
  return s.mask == Mask::Causal ? last_query + 1 : s.T;
}

// Turns a row of scores into probabilities: keys [0, n) take part, the others of the T get 0.
template <class S>
void softmax_row(S* x, int64_t n, int64_t T) {
  S max = -INFINITY, sum = 0;
#pragma omp simd reduction(max : max)
  for (int64_t j = 0; j < n; ++j) max = std::max(max, x[j]);
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += x[j] = vexp(x[j] - max);
  const S factor = S(1) / sum;
  for (int64_t j = 0; j < n; ++j) x[j] *= factor;
  for (int64_t j = n; j < T; ++j) x[j] = 0;
}

template <class T, class S>
void head_fwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, const Share<S>& share,
              const T* q, const T* k, const T* v, T* probs, Write probs_write, T* y, Write y_write) {
  const int64_t in = s.qkv.time;
  for (int64_t t0 = 0; t0 < s.T; t0 += kQueries) {
    const int64_t rows = std::min(kQueries, s.T - t0), keys = keys_of(s, t0 + rows - 1);
    gemm(GemmProblem<T, T, S>{rows, keys, s.D, q + t0 * in, in, 1, k, 1, in, share.scores, s.T, s.scale,
                              Write::Set},
         share.gemm, share.gemm_size);
    for (int64_t i = 0; i < rows; ++i) {
      S* row = share.scores + i * s.T;
      const int64_t n = keys_of(s, t0 + i);
      softmax_row(row, n, s.T);
      if (probs)
        visit_write(probs_write, [&]<Write W>() {
          T* out = probs + (t0 + i) * s.T;
          for (int64_t j = 0; j < s.T; ++j) store<W>(out, j, row[j]);
        });
      if (s.dropout > 0) drop(ctx, s, b, h, t0 + i, 0, n, row);
    }
    if (y)
      gemm(GemmProblem<S, T, T>{rows, s.D, keys, share.scores, s.T, 1, v, in, 1, y + t0 * s.y.time, s.y.time,
                                1, y_write},
           share.gemm, share.gemm_size);
  }
}

// The buffers of one head of queries in backward; an unwanted gradient is nullptr.
template <class T>
struct HeadBwd {
  const T *q, *k, *v, *probs, *dy;
  T *dq, *dk, *dv;
  Write dq_write, dk_write, dv_write;
  HeadBwd later(const AttentionShape& s, int64_t heads) const {  // `heads` heads later, with the same keys
    HeadBwd x = *this;
    x.q += heads * s.qkv.head, x.probs += heads * s.T * s.T, x.dy += heads * s.y.head;
    if (x.dq) x.dq += heads * s.qkv.head;
    return x;
  }
};

// dP = dropout(dy v^T) and dS = P (dP - rowsum(P dP)), for a block of queries; share.scores becomes
// dropout(P).
template <class T, class S>
void scores_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t0, int64_t rows,
                const Share<S>& share, const T* probs) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t n = keys_of(s, t0 + i);
    S *p = share.scores + i * s.T, *grad = share.grads + i * s.T;
    const T* saved = probs + (t0 + i) * s.T;
    if (s.dropout > 0) drop(ctx, s, b, h, t0 + i, 0, n, grad);
    S dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < n; ++j) dot += load(saved, j) * grad[j];
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      p[j] = load(saved, j);
      grad[j] = p[j] * (grad[j] - dot);
    }
    for (int64_t j = n; j < s.T; ++j) p[j] = grad[j] = 0;
    if (s.dropout > 0) drop(ctx, s, b, h, t0 + i, 0, n, p);
  }
}

// Writes dq of one head of queries, and adds to the sums of dk and dv.
template <class T, class S>
void head_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, const Share<S>& share,
              const HeadBwd<T>& x) {
  const int64_t in = s.qkv.time, out = s.y.time;
  const auto product = [&](const auto& problem) { gemm(problem, share.gemm, share.gemm_size); };
  for (int64_t t0 = 0; t0 < s.T; t0 += kQueries) {
    const int64_t rows = std::min(kQueries, s.T - t0), keys = keys_of(s, t0 + rows - 1);
    const T* dy = x.dy + t0 * out;
    product(GemmProblem<T, T, S>{rows, keys, s.D, dy, out, 1, x.v, 1, in, share.grads, s.T, 1, Write::Set});
    scores_bwd(ctx, s, b, h, t0, rows, share, x.probs);
    if (x.dq)
      product(GemmProblem<S, T, T>{rows, s.D, keys, share.grads, s.T, 1, x.k, in, 1, x.dq + t0 * in, in,
                                   s.scale, x.dq_write});
    if (x.dk)
      product(GemmProblem<S, T, S>{keys, s.D, rows, share.grads, 1, s.T, x.q + t0 * in, in, 1, share.dk, s.D,
                                   s.scale, Write::Add});
    if (x.dv)
      product(GemmProblem<S, T, S>{keys, s.D, rows, share.scores, 1, s.T, dy, out, 1, share.dv, s.D, 1,
                                   Write::Add});
  }
}

// Copies the finished sums of dk or dv to their place; nullptr: not wanted.
template <class T, class S>
void write_sums(const AttentionShape& s, const S* sums, T* out, Write write) {
  if (!out) return;
  visit_write(write, [&]<Write W>() {
    for (int64_t t = 0; t < s.T; ++t)
      for (int64_t d = 0; d < s.D; ++d) store<W>(out + t * s.qkv.time, d, sums[t * s.D + d]);
  });
}

// Runs the heads of queries that share head kv of keys, in order; x has the buffers of the first head.
template <class T, class S>
void group_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t kv, const Share<S>& share,
               const HeadBwd<T>& x) {
  std::fill(share.dk, share.dk + 2 * s.T * s.D, S(0));  // and dv, which follows it
  for (int64_t i = 0; i < s.group(); ++i) head_bwd(ctx, s, b, kv * s.group() + i, share, x.later(s, i));
  write_sums(s, share.dk, x.dk, x.dk_write);
  write_sums(s, share.dv, x.dv, x.dv_write);
}

}  // namespace

void attention_plain_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out probs, Out y) {
  check_attention_plain_fwd(s, q, k, v, probs, y);
  visit_float("attention_plain_fwd", q.t, [&]<class T>() {
    using S = acc_t<T>;
    for_each_head<S>(ctx, s, s.H, [&](int64_t b, int64_t h, const Share<S>& share) {
      const int64_t kv = at(s.qkv, b, h / s.group());
      head_fwd(ctx, s, b, h, share, q.as<T>() + at(s.qkv, b, h), k.as<T>() + kv, v.as<T>() + kv,
               probs.wanted() ? probs.as<T>() + (b * s.H + h) * s.T * s.T : nullptr, probs.w,
               y.wanted() ? y.as<T>() + at(s.y, b, h) : nullptr, y.w);
    });
  });
}

void attention_plain_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf probs, CBuf dy,
                         Out dq, Out dk, Out dv) {
  check_attention_plain_bwd(s, q, k, v, probs, dy, dq, dk, dv);
  visit_float("attention_plain_bwd", q.t, [&]<class T>() {
    using S = acc_t<T>;
    for_each_head<S>(ctx, s, s.KV, [&](int64_t b, int64_t kv, const Share<S>& share) {
      const int64_t h = kv * s.group(), i = at(s.qkv, b, h), j = at(s.qkv, b, kv);
      const auto place = [](const Out& o, int64_t at) { return o.wanted() ? o.as<T>() + at : nullptr; };
      group_bwd(
          ctx, s, b, kv, share,
          HeadBwd<T>{q.as<T>() + i, k.as<T>() + j, v.as<T>() + j, probs.as<T>() + (b * s.H + h) * s.T * s.T,
                     dy.as<T>() + at(s.y, b, h), place(dq, i), place(dk, j), place(dv, j), dq.w, dk.w, dv.w});
    });
  });
}

}  // namespace gradus::cpu
