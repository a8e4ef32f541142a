// Attention that saves the log-sum-exp of each query instead of its probabilities (Dao et al. 2022,
// "FlashAttention"; Dao 2023, "FlashAttention-2"). Weights exist only for some queries and a tile of keys at
// a time. Forward keeps the softmax over the keys so far and corrects it tile by tile; backward
// recomputes each weight.
#include "kernels/cpu/attention_tiles.h"

namespace gradus::cpu {

namespace {

// The sizes are multiples of the strips and tiles of every machine: 6, 12 or 96 rows, 4 to 32 columns. Each
// query of a forward task sees at least one key of each tile that the task goes through.
constexpr int64_t kKeys = 384;        // keys of a tile
constexpr int64_t kFwdQueries = 384;  // queries of a task: each tile of keys is packed once for all of them
constexpr int64_t kBwdQueries = 96;   // queries that are multiplied with a tile of keys at a time
static_assert(kFwdQueries == kKeys && kKeys % kBwdQueries == 0);

// A task of forward and its share of the workspace.
template <class T>
struct FlashFwd : HeadTiles<T> {
  using Tiles = HeadTiles<T>;
  using Tiles::kStrip, Tiles::kCols, Tiles::kTile, Tiles::across, Tiles::depth, Tiles::tiles_of;
  using typename Tiles::S, typename Tiles::W;
  W *q, *k;                // rows of the task's queries, columns of a tile of keys
  S *v, *scores, *panels;  // columns of the tile's values; a strip of weights, and its panels of rows
  S *y, *max, *sum;        // of the task's queries, over the keys so far

  FlashFwd(const AttentionShape& s, void* share)
      : Tiles(s.D, share),
        q(this->take_words(kFwdQueries * depth)),
        k(this->take_words(kKeys * depth)),
        v(this->take(across * kCols * kKeys)),
        scores(this->take(kStrip * kKeys)),
        panels(this->take(kStrip * kKeys)),
        y(this->take(this->sums(kFwdQueries))),
        max(this->take(kFwdQueries)),
        sum(this->take(kFwdQueries)) {}

  // Adds the tile of keys [j0, j0 + cols) to the softmax of the strip of queries from t0 + i0 on.
  void strip(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t0, int64_t i0,
             int64_t j0, int64_t cols) {
    const int64_t most = seen_by(s, t0 + i0 + kStrip - 1, j0, cols), tiles = tiles_of(most);
    this->dots(q + i0 * depth, k, tiles, scores);
    for (int64_t i = i0; i < i0 + kStrip; ++i) {
      S *const x = scores + i % kStrip * kCols, *const y_i = y + this->row(i);
      const int64_t seen = seen_by(s, t0 + i, j0, cols);
      const S max_before = max[i];
      max[i] = this->scale_max(x, tiles, seen, s.scale, max[i]);
      const S tile_sum = this->exp_sum(x, tiles, max[i]);
      if (max[i] != max_before) {
        const S correction = vexp(max_before - max[i]);
        sum[i] *= correction;
        for (int64_t c = 0; c < across; ++c)
          for (int64_t l = 0; l < kCols; ++l) y_i[c * kTile + l] *= correction;
      }
      sum[i] += tile_sum;
      this->drop(ctx, s, b, h, t0 + i, j0, seen, x);
    }
    this->pack_scores(most, scores, panels);
    this->multiply(most, panels, v, cols, across, y + this->row(i0));
  }

  // Computes queries [t0, t0 + rows) of a head over all keys that they see.
  void run(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t0, const T* q_in,
           const T* k_in, const T* v_in) {
    const TileRegisters<W> registers;
    const int64_t in = s.qkv.time, rows = rows_of(s, t0), keys = s.mask == Mask::Causal ? t0 + rows : s.T;
    this->pack_rows(rows, s.D, q_in + t0 * in, in, 1, q);
    std::fill_n(y, this->sums(rows), S(0));
    std::fill_n(max, round_up(rows, kStrip),
                std::numeric_limits<S>::lowest());  // no score of -infinity is NaN
    std::fill_n(sum, round_up(rows, kStrip), S(0));
    for (int64_t j0 = 0; j0 < keys; j0 += kKeys) {
      const int64_t cols = std::min(kKeys, keys - j0);
      this->pack_cols(cols, s.D, k_in + j0 * in, in, 1, k);
      this->pack_cols(s.D, cols, v_in + j0 * in, 1, in, v);
      for (int64_t i0 = 0; i0 < rows; i0 += kStrip) strip(ctx, s, b, h, t0, i0, j0, cols);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const S factor = S(1) / sum[i];
      for (int64_t c = 0; c < across; ++c)
        for (int64_t l = 0; l < kCols; ++l) y[this->row(i) + c * kTile + l] *= factor;
    }
  }
  static int64_t rows_of(const AttentionShape& s, int64_t t0) { return std::min(kFwdQueries, s.T - t0); }
};

// The whole tensors that backward reads and writes; an output that is not wanted is nullptr.
template <class T>
struct FlashBwdArgs {
  const T *q, *k, *v, *y, *dy;
  const acc_t<T>* lse;
  acc_t<T>* rowsums;  // (B, H, T): rowsum(dy y), which equals rowsum(P dP) of plain attention's backward
  T *dq, *dk, *dv;
  Write dq_write, dk_write, dv_write;
};

template <class T>
[[gnu::flatten, gnu::noinline]] acc_t<T> dot(int64_t n, const T* x, const T* y) {
  acc_t<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += load(x, i) * load(y, i);
  return sum;
}

// Takes a row of a strip. x: the scores, still without scale, are replaced by the weights P. grad: dP, the
// gradient of the weights before dropout, is replaced by dS, the gradient of the scaled scores. rowsum: the
// sum of P dP over all keys.
template <class T>
[[gnu::flatten, gnu::noinline]] void softmax_bwd(acc_t<T>* x, acc_t<T>* grad, int64_t tiles, acc_t<T> scale,
                                                 acc_t<T> lse, acc_t<T> rowsum) {
  constexpr int64_t kCols = HeadTiles<T>::kCols, kTile = HeadTiles<T>::kTile;
  for (int64_t c = 0; c < tiles; ++c, x += kTile, grad += kTile)
#pragma omp simd
    for (int64_t l = 0; l < kCols; ++l) {
      // BEGIN SOLUTION 15.6
      x[l] = vexp(mul_add(x[l], scale, -lse));
      grad[l] = x[l] * (grad[l] - rowsum);
      // STUB: todo("15.6", "the weight from score and log-sum-exp, and the gradient of the softmax", scale, lse, rowsum);
      // END SOLUTION 15.6
    }
}

template <class T>
struct FlashBwd : HeadTiles<T> {
  using Tiles = HeadTiles<T>;
  using Tiles::kStrip, Tiles::kCols, Tiles::kTile, Tiles::across, Tiles::depth, Tiles::tiles_of;
  using typename Tiles::S, typename Tiles::W;
  W *q, *dy, *k, *v;             // rows of kBwdQueries queries, columns of a tile of keys
  S *q_cols, *dy_cols, *k_cols;  // the same as columns of (queries, D) and of (keys, D)
  S *scores, *grads, *panels;    // of a strip: P and dS, and panels of rows of either
  S *P, *dS;                     // (kBwdQueries, kKeys)
  S *dq, *dk, *dv;

  // dq has the sums of a whole head; dk and dv those of a tile of keys, or of all keys if heads share them.
  FlashBwd(const AttentionShape& s, void* share)
      : Tiles(s.D, share),
        q(this->take_words(kBwdQueries * depth)),
        dy(this->take_words(kBwdQueries * depth)),
        k(this->take_words(kKeys * depth)),
        v(this->take_words(kKeys * depth)),
        q_cols(this->take(across * kCols * kBwdQueries)),
        dy_cols(this->take(across * kCols * kBwdQueries)),
        k_cols(this->take(across * kCols * kKeys)),
        scores(this->take(kStrip * kKeys)),
        grads(this->take(kStrip * kKeys)),
        panels(this->take(kStrip * kKeys)),
        P(this->take(kBwdQueries * kKeys)),
        dS(this->take(kBwdQueries * kKeys)),
        dq(this->take(this->sums(s.T))),
        dk(this->take(this->sums(s.group() > 1 ? s.T : kKeys))),
        dv(this->take(this->sums(s.group() > 1 ? s.T : kKeys))) {}

  // For the strip of queries from t0 + i0 on and the tile of keys: computes its rows of P and dS, and adds to
  // dq. lse and rowsums are those of the head's queries.
  void strip(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t0, int64_t i0,
             int64_t j0, int64_t cols, const S* lse, const S* rowsums) {
    const int64_t most = seen_by(s, t0 + i0 + kStrip - 1, j0, cols), tiles = tiles_of(most);
    this->dots(q + i0 * depth, k, tiles, scores);
    this->dots(dy + i0 * depth, v, tiles, grads);
    const int64_t end = round_up(cols, kStrip);  // add_keys takes whole strips of keys
    for (int64_t i = 0; i < kStrip; ++i) {
      const int64_t t = std::min(t0 + i0 + i, s.T - 1), seen = seen_by(s, t, j0, cols);
      S *const x = scores + i * kCols, *const grad = grads + i * kCols;
      this->drop(ctx, s, b, h, t, j0, seen, grad);
      softmax_bwd<T>(x, grad, tiles, s.scale, lse[t], rowsums[t]);
      this->hide(x, tiles, seen), this->hide(grad, tiles, seen);
      this->drop(ctx, s, b, h, t, j0, seen, x);
      this->copy(x, tiles, end, P + (i0 + i) * kKeys);
      this->copy(grad, tiles, end, dS + (i0 + i) * kKeys);
    }
    this->pack_scores(most, grads, panels);
    this->multiply(most, panels, k_cols, cols, across, dq + this->row(t0 + i0));
  }

  // sums (keys of the tile, D) += weights^T x, where weights are P or dS of queries [t0, t0 + rows).
  void add_keys(const AttentionShape& s, int64_t t0, int64_t rows, int64_t j0, int64_t cols, const S* weights,
                const S* x, S* sums) {
    for (int64_t j = 0; j < cols; j += kStrip) {
      // Queries before key j0 + j do not see it.
      const int64_t skip = s.mask == Mask::Causal ? std::max<int64_t>(j0 + j - t0, 0) : 0;
      if (skip >= rows) return;
      this->pack_rows(kStrip, rows - skip, weights + skip * kKeys + j, 1, kKeys, panels);
      this->multiply(rows - skip, panels, x + skip * kCols, rows, across, sums + this->row(j));
    }
  }

  // Runs the heads of queries that share head kv of keys and values. Offsets in x are those of whole tensors.
  void run(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t kv, const FlashBwdArgs<T>& x) {
    const TileRegisters<W> registers;
    const int64_t in = s.qkv.time, out = s.y.time, group = s.group(), at_kv = at(s.qkv, b, kv);
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const int64_t at_q = at(s.qkv, b, h), at_y = at(s.y, b, h), stats = (b * s.H + h) * s.T;
      const S* const lse = x.lse + stats;
      S* const rowsums = x.rowsums + stats;
      for (int64_t t = 0; t < s.T; ++t) rowsums[t] = dot(s.D, x.dy + at_y + t * out, x.y + at_y + t * out);
      std::fill_n(dq, this->sums(s.T), S(0));
      for (int64_t j0 = 0; j0 < s.T; j0 += kKeys) {
        const int64_t cols = std::min(kKeys, s.T - j0), at_j = at_kv + j0 * in;
        this->pack_cols(cols, s.D, x.k + at_j, in, 1, k);
        this->pack_cols(cols, s.D, x.v + at_j, in, 1, v);
        this->pack_cols(s.D, cols, x.k + at_j, 1, in, k_cols);
        const int64_t sums_j = group > 1 ? this->row(j0) : 0;
        S *const dk_j = dk + sums_j, *const dv_j = dv + sums_j;
        if (h == kv * group) {
          std::fill_n(dk_j, this->sums(cols), S(0));
          std::fill_n(dv_j, this->sums(cols), S(0));
        }
        for (int64_t t0 = s.mask == Mask::Causal ? j0 : 0; t0 < s.T; t0 += kBwdQueries) {
          const int64_t rows = std::min(kBwdQueries, s.T - t0);
          const T *const q_t = x.q + at_q + t0 * in, *const dy_t = x.dy + at_y + t0 * out;
          this->pack_rows(rows, s.D, q_t, in, 1, q);
          this->pack_cols(s.D, rows, q_t, 1, in, q_cols);
          this->pack_rows(rows, s.D, dy_t, out, 1, dy);
          this->pack_cols(s.D, rows, dy_t, 1, out, dy_cols);
          for (int64_t i0 = 0; i0 < rows; i0 += kStrip) strip(ctx, s, b, h, t0, i0, j0, cols, lse, rowsums);
          if (x.dk) add_keys(s, t0, rows, j0, cols, dS, q_cols, dk_j);
          if (x.dv) add_keys(s, t0, rows, j0, cols, P, dy_cols, dv_j);
        }
        if (h + 1 < (kv + 1) * group) continue;
        if (x.dk) this->write(cols, s.D, dk_j, s.scale, x.dk + at_j, in, x.dk_write);
        if (x.dv) this->write(cols, s.D, dv_j, 1, x.dv + at_j, in, x.dv_write);
      }
      if (x.dq) this->write(s.T, s.D, dq, s.scale, x.dq + at_q, in, x.dq_write);
    }
  }
};

}  // namespace

void attention_flash_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out y, Out lse) {
  constexpr const char* kName = "attention_flash_fwd";
  check_attention_flash_fwd(s, q, k, v, y, lse);
  visit_float(kName, q.t, [&]<class T>() {
    using S = acc_t<T>;
    const int64_t tasks = (s.T + kFwdQueries - 1) / kFwdQueries;
    const auto bytes = FlashFwd<T>(s, nullptr).cut.bytes;
    for_tasks(ctx, kName, s, s.B * s.H * tasks, bytes, [&](int64_t i, void* share) {
      const int64_t head = i / tasks, b = head / s.H, h = head % s.H, t0 = i % tasks * kFwdQueries;
      const int64_t at_q = at(s.qkv, b, h), at_kv = at(s.qkv, b, h / s.group());
      FlashFwd<T> task(s, share);
      task.run(ctx, s, b, h, t0, q.as<T>() + at_q, k.as<T>() + at_kv, v.as<T>() + at_kv);
      const int64_t rows = task.rows_of(s, t0);
      if (y.wanted())
        task.write(rows, s.D, task.y, S(1), y.as<T>() + at(s.y, b, h) + t0 * s.y.time, s.y.time, y.w);
      if (lse.wanted())
        visit_write(lse.w, [&]<Write W>() {
          for (int64_t i = 0; i < rows; ++i)
            store<W>(lse.as<S>(), head * s.T + t0 + i, task.max[i] + std::log(task.sum[i]));
        });
    });
  });
}

void attention_flash_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                         CBuf dy, Out dq, Out dk, Out dv) {
  constexpr const char* kName = "attention_flash_bwd";
  check_attention_flash_bwd(s, q, k, v, y, lse, dy, dq, dk, dv);
  visit_float(kName, q.t, [&]<class T>() {
    using S = acc_t<T>;
    const FlashBwdArgs<T> args{
        q.as<T>(),  k.as<T>(),  v.as<T>(),  y.as<T>(), dy.as<T>(), lse.as<S>(), static_cast<S*>(ctx.scratch),
        dq.as<T>(), dk.as<T>(), dv.as<T>(), dq.w,      dk.w,       dv.w};
    for_tasks(ctx, kName, s, s.B * s.KV, FlashBwd<T>(s, nullptr).cut.bytes,
              [&](int64_t i, void* share) { FlashBwd<T>(s, share).run(ctx, s, i / s.KV, i % s.KV, args); });
  });
}

}  // namespace gradus::cpu
