// Attention that saves its probabilities. In forward each (sample, head of queries) is one task, in backward
// each (sample, head of keys), because dk and dv are sums over the heads of queries that share it. A task
// takes blocks of kQueries queries; with a causal mask the products of a block stop at its last key, which
// saves about half of the work. The keys and values of a head are copied once, in the order in which the
// products read them.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"

namespace gradus::cpu {

namespace {

constexpr int64_t kQueries = 48;  // whole tiles of every machine

// A task's share of the workspace: two blocks of rows of scores, the sums of dk and dv, copies of keys and
// values, and room for gemm.
template <class T>
struct Share {
  using S = acc_t<T>;
  static constexpr int kGroup = Tile<S>::kCols;  // keys
  int64_t width;                                 // of rows of scores: whole groups, those beyond T with zeros
  S *scores, *grads;                             // (kQueries, width)
  S *dk, *dv;                                    // (T, D)
  T *across, *rows;                              // (D, width) and (T, D)
  void* gemm;
  int64_t gemm_size, size;
  Share(const AttentionShape& s, void* at) : width(round_up(s.T, kGroup)) {
    Cut cut(at);
    scores = cut.take<S>(kQueries * width), grads = cut.take<S>(kQueries * width);
    dk = cut.take<S>(2 * s.T * s.D), dv = dk + s.T * s.D;
    across = cut.take<T>(s.D * width), rows = cut.take<T>(s.T * s.D);
    gemm_size = gemm_bytes<S>(std::max(s.T, s.D));
    gemm = cut.take<char>(gemm_size);
    size = cut.bytes;
  }

  // Copies a head's keys and values; one of them across.
  void copy(const AttentionShape& s, const T* x_across, const T* x_rows) const {
    pack_panel(s.D, s.T, int(width), x_across, s.qkv.time, 1, 0, across);
    for (int64_t t = 0; t < s.T; ++t) std::copy_n(x_rows + t * s.qkv.time, s.D, rows + t * s.D);
  }
};

// Calls f(b, h, share) for every sample and each of its heads: of queries (s.H) or of keys (s.KV).
template <class T, class F>
void for_each_head(const Ctx& ctx, const AttentionShape& s, int64_t heads, F f) {
  for_tasks(ctx, "attention_plain", s, s.B * heads, Share<T>(s, nullptr).size,
            [&](int64_t i, void* at) { f(i / heads, i % heads, Share<T>(s, at)); });
}

int64_t keys_of(const AttentionShape& s, int64_t last_query) {
  return s.mask == Mask::Causal ? last_query + 1 : s.T;
}

// Turns a row of dot products into probabilities: keys [0, n) take part, the others of the T get 0.
template <int kGroup, class S>
void softmax_row(S* x, int64_t n, int64_t T, S scale) {
  const int64_t groups = ceil_div(n, kGroup), end = groups * kGroup;
  const S max = scale_max<kGroup>(x, groups, kGroup, n, scale, std::numeric_limits<S>::lowest());
  const S factor = S(1) / exp_sum<kGroup>(x, groups, kGroup, max);
  for (int64_t j = 0; j < end; ++j) x[j] *= factor;
  std::fill(x + end, x + std::max(end, T), S(0));
}

template <class T>
void head_fwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, const Share<T>& share,
              const T* q, const T* k, const T* v, T* probs, Write probs_write, T* y, Write y_write) {
  using S = acc_t<T>;
  const int64_t in = s.qkv.time;
  share.copy(s, k, v);
  for (int64_t t0 = 0; t0 < s.T; t0 += kQueries) {
    const int64_t rows = std::min(kQueries, s.T - t0), keys = keys_of(s, t0 + rows - 1);
    gemm(GemmProblem<T, T, S>{rows, round_up(keys, share.kGroup), s.D, q + t0 * in, in, 1, share.across,
                              share.width, 1, share.scores, share.width, 1, Write::Set},
         share.gemm, share.gemm_size);
    for (int64_t i = 0; i < rows; ++i) {
      S* row = share.scores + i * share.width;
      const int64_t n = keys_of(s, t0 + i);
      softmax_row<share.kGroup>(row, n, s.T, S(s.scale));
      if (probs)
        visit_write(probs_write, [&]<Write W>() {
          T* out = probs + (t0 + i) * s.T;
          for (int64_t j = 0; j < s.T; ++j) store<W>(out, j, row[j]);
        });
      if (s.dropout > 0) drop(ctx, s, b, h, t0 + i, 0, n, row);
    }
    if (y)
      gemm(GemmProblem<S, T, T>{rows, s.D, keys, share.scores, share.width, 1, share.rows, s.D, 1,
                                y + t0 * s.y.time, s.y.time, 1, y_write},
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

// dP = dropout(dy v^T) and dS = scale P (dP - rowsum(P dP)), for a block of queries; share.scores becomes
// dropout(P).
template <class T>
void scores_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t0, int64_t rows,
                int64_t keys, const Share<T>& share, const T* probs) {
  using S = acc_t<T>;
  const S scale = S(s.scale);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t n = keys_of(s, t0 + i), end = round_up(n, share.kGroup);
    S *p = share.scores + i * share.width, *grad = share.grads + i * share.width;
    copy_row<Write::Set>(n, probs + (t0 + i) * s.T, p);
    for (S* x : {p, grad}) std::fill(x + n, x + std::max(end, keys), S(0));
    if (s.dropout > 0) drop(ctx, s, b, h, t0 + i, 0, n, grad);
    S dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < end; ++j) dot += p[j] * grad[j];
#pragma omp simd
    for (int64_t j = 0; j < end; ++j) grad[j] = p[j] * (grad[j] - dot) * scale;
    if (s.dropout > 0) drop(ctx, s, b, h, t0 + i, 0, n, p);
  }
}

// Writes dq of one head of queries, and adds to the sums of dk and dv.
template <class T>
void head_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, const Share<T>& share,
              const HeadBwd<T>& x) {
  using S = acc_t<T>;
  const int64_t in = s.qkv.time, out = s.y.time;
  const auto product = [&](const auto& problem) { gemm(problem, share.gemm, share.gemm_size); };
  for (int64_t t0 = 0; t0 < s.T; t0 += kQueries) {
    const int64_t rows = std::min(kQueries, s.T - t0), keys = keys_of(s, t0 + rows - 1);
    const T* dy = x.dy + t0 * out;
    product(GemmProblem<T, T, S>{rows, round_up(keys, share.kGroup), s.D, dy, out, 1, share.across,
                                 share.width, 1, share.grads, share.width, 1, Write::Set});
    scores_bwd(ctx, s, b, h, t0, rows, keys, share, x.probs);
    if (x.dq)
      product(GemmProblem<S, T, T>{rows, s.D, keys, share.grads, share.width, 1, share.rows, s.D, 1,
                                   x.dq + t0 * in, in, 1, x.dq_write});
    if (x.dk)
      product(GemmProblem<S, T, S>{keys, s.D, rows, share.grads, 1, share.width, x.q + t0 * in, in, 1,
                                   share.dk, s.D, 1, Write::Add});
    if (x.dv)
      product(GemmProblem<S, T, S>{keys, s.D, rows, share.scores, 1, share.width, dy, out, 1, share.dv, s.D,
                                   1, Write::Add});
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
template <class T>
void group_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t kv, const Share<T>& share,
               const HeadBwd<T>& x) {
  share.copy(s, x.v, x.k);
  std::fill(share.dk, share.dk + 2 * s.T * s.D, acc_t<T>(0));  // and dv, which follows it
  for (int64_t i = 0; i < s.group(); ++i) head_bwd(ctx, s, b, kv * s.group() + i, share, x.later(s, i));
  write_sums(s, share.dk, x.dk, x.dk_write);
  write_sums(s, share.dv, x.dv, x.dv_write);
}

}  // namespace

void attention_plain_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out probs, Out y) {
  check_attention_plain_fwd(s, q, k, v, probs, y);
  visit_float("attention_plain_fwd", q.t, [&]<class T>() {
    for_each_head<T>(ctx, s, s.H, [&](int64_t b, int64_t h, const Share<T>& share) {
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
    for_each_head<T>(ctx, s, s.KV, [&](int64_t b, int64_t kv, const Share<T>& share) {
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
