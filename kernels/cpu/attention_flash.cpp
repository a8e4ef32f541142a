// Attention that saves the log-sum-exp of each query instead of its probabilities (Dao et al. 2022,
// "FlashAttention"; Dao 2023, "FlashAttention-2"): weights exist only in tiles of kQueries x kKeys. Forward
// keeps the softmax of what it has seen and corrects it tile by tile; backward computes each tile of P again.
// In backward a task is a head of keys, because dk and dv are sums over the heads of queries that share it.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"

namespace gradus::cpu {

namespace {

constexpr int64_t kQueries = 64, kKeys = 128;

// A task's share of the workspace. Forward: y of a tile's queries, their maxima and sums. Backward: dk and dv
// of a tile's keys, dq of all heads of queries that share them.
template <class S>
struct Share {
  S *scores, *grads, *y, *max, *sum;
  S *dk, *dv, *dq;
  void* gemm;
  int64_t gemm_size, size;
  Share(const AttentionShape& s, int64_t dq_rows, void* at) : scores(static_cast<S*>(at)) {
    grads = scores + kQueries * kKeys;
    dk = y = grads + kQueries * kKeys;
    dv = max = y + kKeys * s.D;
    sum = max + kQueries;
    dq = dv + std::max(kKeys * s.D, 2 * kQueries);
    gemm = dq + dq_rows * s.D;
    gemm_size = gemm_bytes<S>(std::max(kKeys, s.D));
    const int64_t numbers = 2 * kQueries * kKeys + kKeys * s.D + std::max(kKeys * s.D, 2 * kQueries);
    size = ((numbers + dq_rows * s.D) * int64_t(sizeof(S)) + gemm_size + 63) / 64 * 64;
  }
};

// How many keys of the tile [j0, j0 + cols) the mask leaves to query t.
int64_t seen_by(const AttentionShape& s, int64_t t, int64_t j0, int64_t cols) {
  return s.mask == Mask::Causal ? std::clamp<int64_t>(t + 1 - j0, 0, cols) : cols;
}

// A query meets a tile of keys: the scores x[0, n) become e^(x - max), the hidden ones after them 0, and they
// join the sum. Returns what to multiply by whatever was summed with an earlier maximum.
template <class S>
S join(S* x, int64_t n, int64_t cols, S& max, S& sum) {
  S most = max, tile = 0;
#pragma omp simd reduction(max : most)
  for (int64_t j = 0; j < n; ++j) most = std::max(most, x[j]);
#pragma omp simd reduction(+ : tile)
  for (int64_t j = 0; j < n; ++j) tile += x[j] = vexp(x[j] - most);
  std::fill(x + n, x + cols, S(0));
  const S correction = vexp(max - most);
  sum = sum * correction + tile;
  max = most;
  return correction;
}

template <class T>
struct FlashFwd {
  const T *q, *k, *v;
  T* y;
  acc_t<T>* lse;
  Write y_write, lse_write;
};

// One tile of queries, from t0 on, against all keys that they see. x: the head's.
template <class T, class S>
void queries_fwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t0,
                 const Share<S>& share, const FlashFwd<T>& x) {
  const int64_t in = s.qkv.time, rows = std::min(kQueries, s.T - t0);
  const int64_t keys = s.mask == Mask::Causal ? t0 + rows : s.T;
  const auto product = [&](const auto& problem) { gemm(problem, share.gemm, share.gemm_size); };
  std::fill(share.y, share.y + rows * s.D, S(0));
  std::fill(share.max, share.max + rows, -INFINITY);
  std::fill(share.sum, share.sum + rows, S(0));
  for (int64_t j0 = 0; j0 < keys; j0 += kKeys) {
    const int64_t cols = std::min(kKeys, keys - j0);
    product(GemmProblem<T, T, S>{rows, cols, s.D, x.q + t0 * in, in, 1, x.k + j0 * in, 1, in, share.scores,
                                 kKeys, s.scale, Write::Set});
    for (int64_t i = 0; i < rows; ++i) {
      S *row = share.scores + i * kKeys, *y = share.y + i * s.D;
      const int64_t n = seen_by(s, t0 + i, j0, cols);
      const S correction = join(row, n, cols, share.max[i], share.sum[i]);
      for (int64_t d = 0; d < s.D; ++d) y[d] *= correction;
      if (s.dropout > 0) drop(ctx, s, b, h, t0 + i, j0, n, row);
    }
    product(GemmProblem<S, T, S>{rows, s.D, cols, share.scores, kKeys, 1, x.v + j0 * in, in, 1, share.y, s.D,
                                 1, Write::Add});
  }
  for (int64_t i = 0; i < rows; ++i) {
    const S factor = S(1) / share.sum[i], lse = share.max[i] + std::log(share.sum[i]);
    if (x.y)
      visit_write(x.y_write, [&]<Write W>() {
        for (int64_t d = 0; d < s.D; ++d)
          store<W>(x.y + (t0 + i) * s.y.time, d, share.y[i * s.D + d] * factor);
      });
    if (x.lse) visit_write(x.lse_write, [&]<Write W>() { store<W>(x.lse, t0 + i, lse); });
  }
}

template <class T>
struct FlashBwd {
  const T *q, *k, *v, *y, *dy;
  const acc_t<T>* lse;
  acc_t<T>* rowsums;  // of dy y: what plain attention's backward computes as rowsum(P dP)
  T *dq, *dk, *dv;
  Write dq_write, dk_write, dv_write;
  FlashBwd later(const AttentionShape& s, int64_t heads) const {  // so many heads on, with the same keys
    FlashBwd x = *this;
    x.q += heads * s.qkv.head, x.y += heads * s.y.head, x.dy += heads * s.y.head;
    x.lse += heads * s.T, x.rowsums += heads * s.T;
    if (x.dq) x.dq += heads * s.qkv.head;
    return x;
  }
};

// share.scores: from scale q k^T to dropout(P); share.grads: from dy v^T to dS = P (dropout(dy v^T) -
// rowsum).
template <class T, class S>
void tile_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t0, int64_t rows,
              int64_t j0, int64_t cols, const Share<S>& share, const FlashBwd<T>& x) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t t = t0 + i, n = seen_by(s, t, j0, cols);
    S *p = share.scores + i * kKeys, *grad = share.grads + i * kKeys;
    const S lse = x.lse[t], rowsum = x.rowsums[t];
    if (s.dropout > 0) drop(ctx, s, b, h, t, j0, n, grad);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      p[j] = vexp(p[j] - lse);
      grad[j] = p[j] * (grad[j] - rowsum);
    }
    std::fill(p + n, p + cols, S(0));
    std::fill(grad + n, grad + cols, S(0));
    if (s.dropout > 0) drop(ctx, s, b, h, t, j0, n, p);
  }
}

// A tile of keys meets the queries of one head: adds to the sums of dk and dv, and of the head's dq.
template <class T, class S>
void keys_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t j0, int64_t cols,
              const Share<S>& share, S* head_dq, const FlashBwd<T>& x) {
  const int64_t in = s.qkv.time, out = s.y.time;
  const auto product = [&](const auto& problem) { gemm(problem, share.gemm, share.gemm_size); };
  const T *k = x.k + j0 * in, *v = x.v + j0 * in;
  for (int64_t t0 = s.mask == Mask::Causal ? j0 : 0; t0 < s.T; t0 += kQueries) {
    const int64_t rows = std::min(kQueries, s.T - t0);
    const T *q = x.q + t0 * in, *dy = x.dy + t0 * out;
    S *dq = head_dq + t0 * s.D, *P = share.scores, *dS = share.grads;
    product(GemmProblem<T, T, S>{rows, cols, s.D, q, in, 1, k, 1, in, P, kKeys, s.scale, Write::Set});
    product(GemmProblem<T, T, S>{rows, cols, s.D, dy, out, 1, v, 1, in, dS, kKeys, 1, Write::Set});
    tile_bwd(ctx, s, b, h, t0, rows, j0, cols, share, x);
    if (x.dq)
      product(GemmProblem<S, T, S>{rows, s.D, cols, dS, kKeys, 1, k, in, 1, dq, s.D, s.scale, Write::Add});
    if (x.dk)
      product(
          GemmProblem<S, T, S>{cols, s.D, rows, dS, 1, kKeys, q, in, 1, share.dk, s.D, s.scale, Write::Add});
    if (x.dv)
      product(GemmProblem<S, T, S>{cols, s.D, rows, P, 1, kKeys, dy, out, 1, share.dv, s.D, 1, Write::Add});
  }
}

// The heads of queries that share head kv of keys, tile by tile of keys; x: the first one's. dq is summed
// over the tiles in fp32 before it is written.
template <class T, class S>
void group_bwd(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t kv, const Share<S>& share,
               const FlashBwd<T>& x) {
  const int64_t out = s.y.time, first = kv * s.group(), head = s.T * s.D;
  for (int64_t i = 0; i < s.group(); ++i) {
    const FlashBwd<T> y = x.later(s, i);
    for (int64_t t = 0; t < s.T; ++t) {
      y.rowsums[t] = 0;
      for (int64_t d = 0; d < s.D; ++d) y.rowsums[t] += load(y.dy, t * out + d) * load(y.y, t * out + d);
    }
  }
  std::fill(share.dq, share.dq + s.group() * head, S(0));
  for (int64_t j0 = 0; j0 < s.T; j0 += kKeys) {
    const int64_t cols = std::min(kKeys, s.T - j0);
    std::fill(share.dk, share.dk + cols * s.D, S(0));
    std::fill(share.dv, share.dv + cols * s.D, S(0));
    for (int64_t i = 0; i < s.group(); ++i)
      keys_bwd(ctx, s, b, first + i, j0, cols, share, share.dq + i * head, x.later(s, i));
    write_sums(s, j0, cols, share.dk, x.dk, x.dk_write);
    write_sums(s, j0, cols, share.dv, x.dv, x.dv_write);
  }
  for (int64_t i = 0; i < s.group(); ++i)
    write_sums(s, 0, s.T, share.dq + i * head, x.later(s, i).dq, x.dq_write);
}

}  // namespace

void attention_flash_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out y, Out lse) {
  constexpr const char* kName = "attention_flash_fwd";
  check_attention_flash_fwd(s, q, k, v, y, lse);
  visit_float(kName, q.t, [&]<class T>() {
    using S = acc_t<T>;
    const int64_t tiles = (s.T + kQueries - 1) / kQueries;
    for_tasks(ctx, kName, s, s.B * s.H * tiles, Share<S>(s, 0, nullptr).size, [&](int64_t i, void* share) {
      const int64_t head = i / tiles, b = head / s.H, h = head % s.H, kv = at(s.qkv, b, h / s.group());
      queries_fwd(ctx, s, b, h, i % tiles * kQueries, Share<S>(s, 0, share),
                  FlashFwd<T>{q.as<T>() + at(s.qkv, b, h), k.as<T>() + kv, v.as<T>() + kv,
                              y.wanted() ? y.as<T>() + at(s.y, b, h) : nullptr,
                              lse.wanted() ? lse.as<S>() + head * s.T : nullptr, y.w, lse.w});
    });
  });
}

void attention_flash_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                         CBuf dy, Out dq, Out dk, Out dv) {
  constexpr const char* kName = "attention_flash_bwd";
  check_attention_flash_bwd(s, q, k, v, y, lse, dy, dq, dk, dv);
  visit_float(kName, q.t, [&]<class T>() {
    using S = acc_t<T>;
    const int64_t dq_rows = s.group() * s.T;
    for_tasks(ctx, kName, s, s.B * s.KV, Share<S>(s, dq_rows, nullptr).size, [&](int64_t task, void* share) {
      const int64_t b = task / s.KV, kv = task % s.KV, h = kv * s.group(), head = b * s.H + h;
      const int64_t i = at(s.qkv, b, h), j = at(s.qkv, b, kv), out = at(s.y, b, h);
      const auto place = [](const Out& o, int64_t at) { return o.wanted() ? o.as<T>() + at : nullptr; };
      group_bwd(ctx, s, b, kv, Share<S>(s, dq_rows, share),
                FlashBwd<T>{q.as<T>() + i, k.as<T>() + j, v.as<T>() + j, y.as<T>() + out, dy.as<T>() + out,
                            lse.as<S>() + head * s.T, static_cast<S*>(ctx.scratch) + head * s.T, place(dq, i),
                            place(dk, j), place(dv, j), dq.w, dk.w, dv.w});
    });
  });
}

}  // namespace gradus::cpu
