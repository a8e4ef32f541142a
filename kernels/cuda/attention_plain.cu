// Attention that saves its probabilities. A block owns kRows queries of a head (for dk and dv, kRows keys)
// and keeps their weights to all T others in shared memory; it reads the others' vectors once for each
// product.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_sizes.h"

namespace gradus::GRADUS_GPU {

namespace {

constexpr int kDepth = 16;  // columns of the others that are in shared memory at a time
constexpr int kWarps = kThreads / kWarp;
constexpr int64_t kSharedBytes = 64 << 10;  // per block; every GPU since Turing has this much

// A block's shared memory. kRows <= kWarps, because each row has a warp.
template <int kRows>
struct Shared {
  static constexpr int kTile = kThreads * (kDepth + 1);
  int64_t others, depth, kept;
  float *weights, *own, *tile;  // (kRows, others); (kRows, depth), zeros from D on; (kThreads, kDepth + 1)
  float* sums;  // (kRows, depth), only if heads of queries share keys: dk or dv, summed over heads so far
  __host__ __device__ explicit Shared(const AttentionShape& s)
      : others(s.T), depth((s.D + kDepth - 1) / kDepth * kDepth), kept(s.H > s.KV ? kRows * depth : 0) {}
  __device__ Shared(const AttentionShape& s, float* memory) : Shared(s) {
    tile = memory, own = tile + kTile, sums = own + kRows * depth, weights = sums + kept;
  }
  int64_t bytes() const { return (kTile + kRows * (depth + others) + kept) * int64_t(sizeof(float)); }
};

// own <- the block's rows of x.
template <int kRows, class T>
__device__ void load_own(const AttentionShape& s, const Place& p, const Shared<kRows>& m, const T* x,
                         int64_t time) {
  for (int64_t e = threadIdx.x; e < kRows * m.depth; e += kThreads) {
    const int64_t row = p.first + e / m.depth, d = e % m.depth;
    m.own[e] = row < p.end && d < s.D ? load(x, row * time + d) : 0.0f;
  }
}

// weights[i][j] = factor * own row i . row j of x, for j in [begin, end). Each thread takes a row of x; the
// block loads the rows into shared memory first, so that adjacent threads read adjacent columns.
template <int kRows, class T>
__device__ void dot_rows(const AttentionShape& s, const Shared<kRows>& m, const T* x, int64_t time,
                         int64_t begin, int64_t end, float factor) {
  for (int64_t j0 = begin; j0 < end; j0 += kThreads) {
    float sum[kRows] = {};
    for (int64_t d0 = 0; d0 < s.D; d0 += kDepth) {
      __syncthreads();
      for (int e = threadIdx.x; e < kThreads * kDepth; e += kThreads) {
        const int row = e / kDepth, c = e % kDepth;
        m.tile[row * (kDepth + 1) + c] =
            j0 + row < end && d0 + c < s.D ? load(x, (j0 + row) * time + d0 + c) : 0.0f;
      }
      __syncthreads();
      for (int c = 0; c < kDepth; ++c)
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          sum[i] += m.own[i * m.depth + d0 + c] * m.tile[threadIdx.x * (kDepth + 1) + c];
    }
    if (j0 + threadIdx.x < end)
      for (int i = 0; i < kRows; ++i) m.weights[i * m.others + j0 + threadIdx.x] = factor * sum[i];
  }
}

// Calls f(i, d, sum over j in [begin, end) of weights[i][j] x[j, d]) for the block's rows i and all d, always
// on the same thread for the same (i, d). Each lane takes a column; the warps share the j, and their sums are
// added in order.
template <int kRows, class T, class F>
__device__ void sum_rows(const AttentionShape& s, const Place& p, const Shared<kRows>& m, const T* x,
                         int64_t time, int64_t begin, int64_t end, F f) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t d0 = 0; d0 < s.D; d0 += kWarp) {
    const int64_t d = d0 + lane;
    float sum[kRows] = {};
    for (int64_t j = begin + warp; j < end && d < s.D; j += kWarps) {
      const float xjd = load(x, j * time + d);
#pragma unroll
      for (int i = 0; i < kRows; ++i) sum[i] += m.weights[i * m.others + j] * xjd;
    }
    __syncthreads();  // the tile may still be read
    for (int i = 0; i < kRows; ++i) m.tile[(i * kWarps + warp) * kWarp + lane] = sum[i];
    __syncthreads();
    if (warp >= p.end - p.first || d >= s.D) continue;
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += m.tile[(warp * kWarps + w) * kWarp + lane];
    f(warp, d, total);
  }
}
// Stores these sums: out[own row i, d] = factor * sum; `head` is the offset of the head in out.
template <int kRows, class T>
__device__ void store_rows(const AttentionShape& s, const Place& p, const Shared<kRows>& m, const T* x,
                           int64_t begin, int64_t end, float factor, Out out, int64_t head, int64_t time) {
  sum_rows(s, p, m, x, s.qkv.time, begin, end, [&](int row, int64_t d, float total) {
    store(out.w, out.as<T>() + head, (p.first + row) * time + d, factor * total);
  });
}

// weights <- dropout(weights) of the block's queries to keys [0, keys). All weights must have been written.
template <int kRows>
__device__ void drop_queries(const AttentionShape& s, const StepScalars* scalars, const Place& p,
                             const Shared<kRows>& m, int64_t keys) {
  if (s.dropout == 0) return;
  dropout_factors(s, scalars, p.b, p.h, p.first, p.end, 0, keys, [&](int64_t t, int64_t j, float factor) {
    m.weights[(t - p.first) * m.others + j] *= factor;
  });
}
// The same for the block's keys and queries [queries, T) of head h.
template <int kRows>
__device__ void drop_keys(const AttentionShape& s, const StepScalars* scalars, const Place& p, int64_t h,
                          const Shared<kRows>& m, int64_t queries) {
  if (s.dropout == 0) return;
  dropout_factors(s, scalars, p.b, h, queries, s.T, p.first, p.end, [&](int64_t t, int64_t j, float factor) {
    m.weights[(j - p.first) * m.others + t] *= factor;
  });
}

// One warp turns the scores of query t into probabilities and saves them; those that the mask hides are 0.
template <class T>
__device__ void softmax_row(const AttentionShape& s, int64_t t, int64_t keys, float* x, T* probs,
                            Write write) {
  const int lane = threadIdx.x % kWarp;
  const int64_t seen = keys_end(s, t + 1);
  float max = -INFINITY, sum = 0;
  for (int64_t j = lane; j < seen; j += kWarp) max = x[j] > max ? x[j] : max;
  max = warp_max(max);
  for (int64_t j = lane; j < seen; j += kWarp) sum += x[j] = expf(x[j] - max);
  const float factor = 1.0f / warp_sum(sum);
  for (int64_t j = lane; j < s.T; j += kWarp) {
    const float r = j < seen ? x[j] * factor : 0.0f;
    if (j < keys) x[j] = r;
    if (probs) store(write, probs, t * s.T + j, r);
  }
}

template <int kRows, class T>
__global__ void plain_fwd_kernel(AttentionShape s, const StepScalars* scalars, CBuf q, CBuf k, CBuf v,
                                 Out probs, Out y) {
  const Place p(s, s.H, kRows);
  const Shared<kRows> m(s, shared_memory<float>());
  const int64_t kv = p.in(s.qkv, p.h / s.group());
  const int64_t keys = keys_end(s, p.end), row = p.first + threadIdx.x / kWarp;
  load_own(s, p, m, q.as<T>() + p.in(s.qkv), s.qkv.time);
  dot_rows(s, m, k.as<T>() + kv, s.qkv.time, 0, keys, s.scale);
  __syncthreads();
  if (row < p.end)
    softmax_row(s, row, keys, m.weights + (row - p.first) * m.others,
                probs.wanted() ? probs.as<T>() + (p.b * s.H + p.h) * s.T * s.T : nullptr, probs.w);
  __syncthreads();
  drop_queries(s, scalars, p, m, keys);
  __syncthreads();
  if (y.wanted()) store_rows(s, p, m, v.as<T>() + kv, 0, keys, 1, y, p.in(s.y), s.y.time);
}

struct PlainBwd {
  CBuf q, k, v, probs, dy;
  Out dq, dk, dv;
  float* rowdots;  // (B, H, T): sum_j P_ij dP_ij; the pass over queries writes, the pass over keys reads it
};

// dS_ij = P_ij (dP_ij - rowdot_i), dP = dropout(dy v^T), for the block's queries i; dq_i = scale sum_j dS_ij
// k_j.
template <int kRows, class T>
__global__ void plain_dq_kernel(AttentionShape s, const StepScalars* scalars, PlainBwd x) {
  const Place p(s, s.H, kRows);
  const Shared<kRows> m(s, shared_memory<float>());
  const int64_t kv = p.in(s.qkv, p.h / s.group());
  const int64_t keys = keys_end(s, p.end), head = p.b * s.H + p.h;
  load_own(s, p, m, x.dy.as<T>() + p.in(s.y), s.y.time);
  dot_rows(s, m, x.v.as<T>() + kv, s.qkv.time, 0, keys, 1);
  __syncthreads();
  drop_queries(s, scalars, p, m, keys);
  __syncthreads();
  const int lane = threadIdx.x % kWarp;
  const int64_t i = p.first + threadIdx.x / kWarp;
  if (i < p.end) {
    float* row = m.weights + (i - p.first) * m.others;
    const T* probs = x.probs.as<T>() + (head * s.T + i) * s.T;
    const int64_t seen = keys_end(s, i + 1);
    float dot = 0;
    for (int64_t j = lane; j < seen; j += kWarp) dot += load(probs, j) * row[j];
    dot = warp_sum(dot);
    if (lane == 0) store<Write::Set>(x.rowdots, head * s.T + i, dot);
    for (int64_t j = lane; j < keys; j += kWarp) row[j] = j < seen ? load(probs, j) * (row[j] - dot) : 0.0f;
  }
  __syncthreads();
  if (x.dq.wanted()) store_rows(s, p, m, x.k.as<T>() + kv, 0, keys, s.scale, x.dq, p.in(s.qkv), s.qkv.time);
}

// For the block's keys j: dk_j = scale sum_i dS_ij q_i, then dv_j = sum_i dropout(P)_ij dy_i, over the
// queries i of all heads that share the keys. m.weights has the weights of one head at a time; m.sums has the
// sums over heads. If heads are not shared, the number of heads is the constant 1, because in a loop over
// heads the compiler needs more registers, and a multiprocessor then has room for two blocks instead of
// three.
template <int kRows, bool kShared, class T>
__global__ void __launch_bounds__(kThreads, kShared ? 2 : 3)
    plain_dkv_kernel(AttentionShape s, const StepScalars* scalars, PlainBwd x) {
  const Place p(s, s.KV, kRows);
  const Shared<kRows> m(s, shared_memory<float>());
  const int64_t kv = p.in(s.qkv), begin = queries_begin(s, p.first);
  const int64_t heads = kShared ? s.group() : 1, first = p.h * heads;
  // weights[j][t] = f(P_tj, weights[j][t]), 0 where the mask hides key j from query t
  const auto for_weights = [&](int64_t h, auto f) {
    const T* probs = x.probs.as<T>() + (p.b * s.H + h) * s.T * s.T;
    for (int64_t e = threadIdx.x; e < (s.T - begin) * kRows; e += kThreads) {
      const int64_t t = begin + e / kRows, j = p.first + e % kRows;
      float& weight = m.weights[(j - p.first) * m.others + t];
      weight = j < keys_end(s, t + 1) && j < p.end ? f(load(probs, t * s.T + j), weight, t) : 0.0f;
    }
  };
  // out[j] = factor * sum over the heads of weights[j] others; i counts the heads. The same thread writes and
  // reads an element of m.sums.
  const auto sum_head = [&](int64_t i, const T* others, int64_t time, float factor, Out out) {
    sum_rows(s, p, m, others, time, begin, s.T, [&](int row, int64_t d, float total) {
      float& sum = m.sums[row * m.depth + d];
      if (i > 0) total += sum;
      if (i + 1 < heads)
        sum = total;
      else
        store(out.w, out.as<T>() + kv, (p.first + row) * s.qkv.time + d, factor * total);
    });
    __syncthreads();
  };
  if (x.dk.wanted()) {
    load_own(s, p, m, x.v.as<T>() + kv, s.qkv.time);
    for (int64_t i = 0; i < heads; ++i) {
      const int64_t h = first + i;
      const float* rowdots = x.rowdots + (p.b * s.H + h) * s.T;
      dot_rows(s, m, x.dy.as<T>() + p.in(s.y, h), s.y.time, begin, s.T, 1);
      __syncthreads();
      drop_keys(s, scalars, p, h, m, begin);
      __syncthreads();
      for_weights(h, [&](float P, float dP, int64_t t) { return P * (dP - load(rowdots, t)); });
      __syncthreads();
      sum_head(i, x.q.as<T>() + p.in(s.qkv, h), s.qkv.time, s.scale, x.dk);
    }
  }
  if (x.dv.wanted())
    for (int64_t i = 0; i < heads; ++i) {
      const int64_t h = first + i;
      for_weights(h, [](float P, float, int64_t) { return P; });
      __syncthreads();
      drop_keys(s, scalars, p, h, m, begin);
      __syncthreads();
      sum_head(i, x.dy.as<T>() + p.in(s.y, h), s.y.time, 1, x.dv);
    }
}

// Calls f.operator()<kRows>(bytes of shared memory) with the largest number of rows per block that fits.
template <class F>
void visit_rows(const char* op, const AttentionShape& s, F f) {
  const int64_t eight = Shared<kPlainRows>(s).bytes(), two = Shared<2>(s).bytes();
  if (eight <= kSharedBytes) return f.template operator()<kPlainRows>(eight);
  check(two <= kSharedBytes, op, ": rows of ", s.T, " weights with heads of ", s.D, " need ", two,
        " bytes of shared memory, but a block has ", kSharedBytes, "; attention_flash has no such limit");
  f.template operator()<2>(two);
}

}  // namespace

void attention_plain_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out probs, Out y) {
  constexpr const char* kName = "attention_plain_fwd";
  check_attention_plain_fwd(s, q, k, v, probs, y);
  visit_gpu(kName, q.t, [&]<class T>() {
    visit_rows(kName, s, [&]<int kRows>(int64_t bytes) {
      launch(ctx, kName, grid_of(s, s.H, kRows), kThreads, bytes, plain_fwd_kernel<kRows, T>, s, ctx.scalars,
             q, k, v, probs, y);
    });
  });
}

void attention_plain_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf probs, CBuf dy,
                         Out dq, Out dk, Out dv) {
  constexpr const char* kName = "attention_plain_bwd";
  check_attention_plain_bwd(s, q, k, v, probs, dy, dq, dk, dv);
  const PlainBwd x{q, k, v, probs, dy, dq, dk, dv, static_cast<float*>(ctx.scratch)};
  visit_gpu(kName, q.t, [&]<class T>() {
    visit_rows(kName, s, [&]<int kRows>(int64_t bytes) {
      if (dq.wanted() || dk.wanted())
        launch(ctx, kName, grid_of(s, s.H, kRows), kThreads, bytes, plain_dq_kernel<kRows, T>, s, ctx.scalars,
               x);
      if (dk.wanted() || dv.wanted())
        launch(ctx, kName, grid_of(s, s.KV, kRows), kThreads, bytes,
               s.H > s.KV ? plain_dkv_kernel<kRows, true, T> : plain_dkv_kernel<kRows, false, T>, s,
               ctx.scalars, x);
    });
  });
}

}  // namespace gradus::GRADUS_GPU
