// Attention that saves the log-sum-exp of each query instead of its probabilities (Dao et al. 2022,
// "FlashAttention"; Dao 2023, "FlashAttention-2"). A block owns a tile of queries of one head and goes
// through the keys tile by tile (forward, dq), or it owns a tile of keys and goes through the queries of all
// heads that share these keys (dk, dv). A block has only one tile of weights at a time, in shared memory.
#include <cfloat>

#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/attention_tiles.h"

namespace gradus::GRADUS_GPU {

namespace {

// Whether query t sees key j; both may lie beyond the end.
inline __device__ bool sees(const AttentionShape& s, int64_t t, int64_t j) {
  return t < s.T && j < s.T && (s.mask == Mask::None || j <= t);
}

// FlashAttention-2, algorithm 1. Over the keys so far, a thread has for each of its rows: the maximum of the
// scores, the sum of e^(score - max), and the sum of e^(score - max) v.
template <class T, int kDims>
__global__ void flash_fwd_kernel(AttentionShape s, const StepScalars* scalars, CBuf q, CBuf k, CBuf v, Out y,
                                 Out lse) {
  constexpr int kRows = kFwdRows<kDims>, kTile = kSide * kRows;
  float *const queries = shared_memory<float>(), *const other = queries + kVectors<kRows, kDims>,
               *const weights = other + kVectors<kRows, kDims>;
  const Place p(s, s.H, kTile);
  const int64_t kv = p.in(s.qkv, p.h / s.group()), keys = keys_end(s, p.end);
  float max[kRows], sum[kRows], weighted[kRows][kDims / kSide] = {};
  for (int i = 0; i < kRows; ++i) max[i] = -FLT_MAX, sum[i] = 0;  // so -infinity scores give no NaN

  load_tile<kRows, kDims>(s, q.as<T>() + p.in(s.qkv), s.qkv.time, p.first, p.end, queries);
  for (int64_t j0 = 0; j0 < keys; j0 += kTile) {
    __syncthreads();
    load_tile<kRows, kDims>(s, k.as<T>() + kv, s.qkv.time, j0, s.T, other);
    __syncthreads();
    float score[kRows][kRows];
    dot_tiles<kRows, kDims>(queries, other, score);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float most = max[i], tile = 0;
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const bool seen = sees(s, p.first + thread_row() + i * kSide, j0 + thread_col() + j * kSide);
        score[i][j] = seen ? s.scale * score[i][j] : -INFINITY;
        most = score[i][j] > most ? score[i][j] : most;
      }
      most = row_max(most);
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const float weight = expf(score[i][j] - most);
        tile += weight;
        weights[weight_at<kRows>(i, j)] = weight;
      }
      const float correction = expf(max[i] - most);
      max[i] = most, sum[i] = sum[i] * correction + row_sum(tile);
#pragma unroll
      for (int c = 0; c < kDims / kSide; ++c) weighted[i][c] *= correction;
    }
    __syncthreads();
    load_tile<kRows, kDims>(s, v.as<T>() + kv, s.qkv.time, j0, s.T, other);
    if (s.dropout > 0)
      dropout_factors(s, scalars, p.b, p.h, p.first, p.end, j0, j0 + kTile,
                      [&](int64_t t, int64_t j, float factor) {
                        weights[(t - p.first) * kWeightLine<kRows> + j - j0] *= factor;
                      });
    __syncthreads();
    add_weighted<kRows, kDims>(weights, other, weighted);
  }

#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float factor = 1.0f / sum[i];
    for (int c = 0; c < kDims / kSide; ++c) weighted[i][c] *= factor;
    const int64_t t = p.first + thread_row() + i * kSide;
    if (lse.wanted() && thread_col() == 0 && t < p.end)
      store(lse.w, lse.as<float>(), (p.b * s.H + p.h) * s.T + t, max[i] + logf(sum[i]));
  }
  if (y.wanted()) store_sums<T, kRows, kDims>(s, p, weighted, 1, y, p.in(s.y), s.y.time);
}

struct FlashBwd {
  CBuf q, k, v, y, lse, dy;
  Out dq, dk, dv;
  float* rowsums;  // (B, H, T): rowsum(dy y), which equals rowsum(P dP) of plain attention's backward
};

// One warp per query.
template <class T>
__global__ void flash_rowsum_kernel(AttentionShape s, FlashBwd x) {
  const int64_t row = int64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= s.B * s.H * s.T) return;
  const int64_t at = row / s.T / s.H * s.y.batch + row / s.T % s.H * s.y.head + row % s.T * s.y.time;
  float sum = 0;
  for (int64_t d = threadIdx.x % kWarp; d < s.D; d += kWarp)
    sum += load(x.dy.as<T>(), at + d) * load(x.y.as<T>(), at + d);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) store<Write::Set>(x.rowsums, row, sum);
}

// weights <- the dropout factors of a tile of queries from t0 on and keys from j0 on; pairs past the end have
// factors, too. A line of weights belongs to a query (dq) or to a key (dk, dv).
template <int kRows>
__device__ void load_factors(const AttentionShape& s, const StepScalars* scalars, int64_t b, int64_t h,
                             int64_t t0, int64_t j0, int query_step, int key_step, float* weights) {
  constexpr int kTile = kSide * kRows;
  if (s.dropout == 0) return;
  dropout_factors(s, scalars, b, h, t0, t0 + kTile, j0, j0 + kTile, [&](int64_t t, int64_t j, float factor) {
    weights[(t - t0) * query_step + (j - j0) * key_step] = factor;
  });
}

// The statistics of the thread's queries t, t + kSide, ...; `head` is the offset of their head's statistics.
template <int kRows>
__device__ void load_stats(const AttentionShape& s, const FlashBwd& x, int64_t head, int64_t t,
                           float (&lse)[kRows], float (&rowsum)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i, t += kSide) {
    lse[i] = t < s.T ? load(x.lse.as<float>(), head + t) : 0.0f;
    rowsum[i] = t < s.T ? load(x.rowsums, head + t) : 0.0f;
  }
}

// For a tile of queries, the keys tile by tile: dS = P (dropout(dy v^T) - rowsum), dq = scale sum dS k.
template <class T, int kDims>
__global__ void flash_dq_kernel(AttentionShape s, const StepScalars* scalars, FlashBwd x) {
  constexpr int kRows = kBwdRows, kTile = kSide * kRows, kLine = kWeightLine<kRows>;
  float *const q = shared_memory<float>(), *const dy = q + kVectors<kRows, kDims>,
               *const other = dy + kVectors<kRows, kDims>, *const weights = other + kVectors<kRows, kDims>;
  const Place p(s, s.H, kTile);
  const int64_t in = p.in(s.qkv), kv = p.in(s.qkv, p.h / s.group());
  const int64_t keys = keys_end(s, p.end), stats = (p.b * s.H + p.h) * s.T;
  float dq[kRows][kDims / kSide] = {}, lse[kRows], rowsum[kRows];
  load_stats(s, x, stats, p.first + thread_row(), lse, rowsum);

  load_tile<kRows, kDims>(s, x.q.as<T>() + in, s.qkv.time, p.first, p.end, q);
  load_tile<kRows, kDims>(s, x.dy.as<T>() + p.in(s.y), s.y.time, p.first, p.end, dy);
  for (int64_t j0 = 0; j0 < keys; j0 += kTile) {
    float dots[kRows][kRows], P[kRows][kRows];
    __syncthreads();
    load_tile<kRows, kDims>(s, x.k.as<T>() + kv, s.qkv.time, j0, s.T, other);
    load_factors<kRows>(s, scalars, p.b, p.h, p.first, j0, kLine, 1, weights);
    __syncthreads();
    dot_tiles<kRows, kDims>(q, other, dots);
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kRows; ++j) {
        const bool seen = sees(s, p.first + thread_row() + i * kSide, j0 + thread_col() + j * kSide);
        P[i][j] = seen ? expf(s.scale * dots[i][j] - lse[i]) : 0.0f;
      }
    __syncthreads();
    load_tile<kRows, kDims>(s, x.v.as<T>() + kv, s.qkv.time, j0, s.T, other);
    __syncthreads();
    dot_tiles<kRows, kDims>(dy, other, dots);
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kRows; ++j) {
        float& weight = weights[weight_at<kRows>(i, j)];
        const float dP = s.dropout > 0 ? weight * dots[i][j] : dots[i][j];
        weight = P[i][j] * (dP - rowsum[i]);
      }
    __syncthreads();
    load_tile<kRows, kDims>(s, x.k.as<T>() + kv, s.qkv.time, j0, s.T, other);
    __syncthreads();
    add_weighted<kRows, kDims>(weights, other, dq);
  }
  store_sums<T, kRows, kDims>(s, p, dq, s.scale, x.dq, in, s.qkv.time);
}

// For a tile of keys, the queries of one head after the other, tile by tile: dv = sum dropout(P)^T dy, dk =
// scale sum dS^T q. Rows of the tile of weights are keys, columns are queries.
template <class T, int kDims>
__global__ void flash_dkv_kernel(AttentionShape s, const StepScalars* scalars, FlashBwd x) {
  constexpr int kRows = kBwdRows, kTile = kSide * kRows, kLine = kWeightLine<kRows>;
  float *const k = shared_memory<float>(), *const v = k + kVectors<kRows, kDims>,
               *const other = v + kVectors<kRows, kDims>, *const weights = other + kVectors<kRows, kDims>;
  const Place p(s, s.KV, kTile);
  const int64_t kv = p.in(s.qkv);
  float dk[kRows][kDims / kSide] = {}, dv[kRows][kDims / kSide] = {};

  load_tile<kRows, kDims>(s, x.k.as<T>() + kv, s.qkv.time, p.first, p.end, k);
  load_tile<kRows, kDims>(s, x.v.as<T>() + kv, s.qkv.time, p.first, p.end, v);
  for (int64_t h = p.h * s.group(); h < (p.h + 1) * s.group(); ++h) {
    const int64_t in = p.in(s.qkv, h), out = p.in(s.y, h), stats = (p.b * s.H + h) * s.T;
    for (int64_t t0 = queries_begin(s, p.first); t0 < s.T; t0 += kTile) {
      float dots[kRows][kRows], P[kRows][kRows], factor[kRows][kRows], lse[kRows], rowsum[kRows];
      load_stats(s, x, stats, t0 + thread_col(), lse, rowsum);
      __syncthreads();
      load_tile<kRows, kDims>(s, x.q.as<T>() + in, s.qkv.time, t0, s.T, other);
      load_factors<kRows>(s, scalars, p.b, h, t0, p.first, 1, kLine, weights);
      __syncthreads();
      dot_tiles<kRows, kDims>(k, other, dots);
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kRows; ++j) {
          const int64_t t = t0 + thread_col() + j * kSide;
          const bool seen = sees(s, t, p.first + thread_row() + i * kSide);
          float& weight = weights[weight_at<kRows>(i, j)];
          P[i][j] = seen ? expf(s.scale * dots[i][j] - lse[j]) : 0.0f;
          factor[i][j] = s.dropout > 0 ? weight : 1.0f;
          weight = factor[i][j] * P[i][j];
        }
      __syncthreads();
      load_tile<kRows, kDims>(s, x.dy.as<T>() + out, s.y.time, t0, s.T, other);
      __syncthreads();
      if (x.dv.wanted()) add_weighted<kRows, kDims>(weights, other, dv);
      if (!x.dk.wanted()) continue;
      dot_tiles<kRows, kDims>(v, other, dots);
      __syncthreads();
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kRows; ++j)
          weights[weight_at<kRows>(i, j)] = P[i][j] * (factor[i][j] * dots[i][j] - rowsum[j]);
      load_tile<kRows, kDims>(s, x.q.as<T>() + in, s.qkv.time, t0, s.T, other);
      __syncthreads();
      add_weighted<kRows, kDims>(weights, other, dk);
    }
  }
  if (x.dk.wanted()) store_sums<T, kRows, kDims>(s, p, dk, s.scale, x.dk, kv, s.qkv.time);
  if (x.dv.wanted()) store_sums<T, kRows, kDims>(s, p, dv, 1, x.dv, kv, s.qkv.time);
}

// Calls f.operator()<T, kDims>() with the element type and the smallest kDims that holds a head.
template <class F>
void visit_head(const char* op, const AttentionShape& s, DType t, F f) {
  check(s.D <= 128, op, ": heads of ", s.D,
        " dimensions; at most 128 are possible, but attention_plain has no such limit");
  visit_gpu(op, t, [&]<class T>() {
    if (s.D <= 64)
      f.template operator()<T, 64>();
    else
      f.template operator()<T, 128>();
  });
}

}  // namespace

void attention_flash_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out y, Out lse) {
  constexpr const char* kName = "attention_flash_fwd";
  check_attention_flash_fwd(s, q, k, v, y, lse);
  if (cudnn_attention_fwd(ctx, s, q, k, v, y, lse)) return;
  visit_head(kName, s, q.t, [&]<class T, int kDims>() {
    constexpr int kRows = kFwdRows<kDims>;
    launch(ctx, kName, grid_of(s, s.H, kSide * kRows), kThreads,
           (2 * kVectors<kRows, kDims> + kWeights<kRows>)*int64_t(sizeof(float)), flash_fwd_kernel<T, kDims>,
           s, ctx.scalars, q, k, v, y, lse);
  });
}

void attention_flash_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                         CBuf dy, Out dq, Out dk, Out dv) {
  constexpr const char* kName = "attention_flash_bwd";
  check_attention_flash_bwd(s, q, k, v, y, lse, dy, dq, dk, dv);
  if (cudnn_attention_bwd(ctx, s, q, k, v, y, lse, dy, dq, dk, dv)) return;
  const FlashBwd x{q, k, v, y, lse, dy, dq, dk, dv, static_cast<float*>(ctx.scratch)};
  visit_head(kName, s, q.t, [&]<class T, int kDims>() {
    constexpr int64_t kBytes = (3 * kVectors<kBwdRows, kDims> + kWeights<kBwdRows>)*int64_t(sizeof(float));
    launch(ctx, kName, blocks_for(s.B * s.H * s.T, kThreads / kWarp), kThreads, 0, flash_rowsum_kernel<T>, s,
           x);
    if (dq.wanted())
      launch(ctx, kName, grid_of(s, s.H, kSide * kBwdRows), kThreads, kBytes, flash_dq_kernel<T, kDims>, s,
             ctx.scalars, x);
    if (dk.wanted() || dv.wanted())
      launch(ctx, kName, grid_of(s, s.KV, kSide * kBwdRows), kThreads, kBytes, flash_dkv_kernel<T, kDims>, s,
             ctx.scalars, x);
  });
}

}  // namespace gradus::GRADUS_GPU
