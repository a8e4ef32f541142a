#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

inline __device__ int64_t id_of(int64_t row, int64_t vocab, const int32_t* ids) {
  const int32_t id = ids[row];
  device_check((id >= 0 && id < vocab) || id == kElsewhere, "embedding: id", id,
               "is not a row of the table; see row", row);
  return id;
}

template <Write W, class T>
__global__ void embedding_fwd_kernel(int64_t cols, int64_t vocab, const T* table, const int32_t* ids, T* y) {
  const int64_t r = blockIdx.x, id = id_of(r, vocab, ids);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    store<W>(y, r * cols + c, id < 0 ? 0.0f : load(table, id * cols + c));
}

void embedding_fwd(const Ctx& ctx, RowShape s, int64_t vocab, CBuf table, CBuf ids, Out y) {
  check_embedding_fwd(table, ids, y);
  visit_out("embedding_fwd", y, [&]<class T, Write W>() {
    launch(ctx, "embedding_fwd", unsigned(s.rows), row_threads(s.cols), 0, embedding_fwd_kernel<W, T>, s.cols,
           vocab, table.as<T>(), ids.as<int32_t>(), y.as<T>());
  });
}

// An id may occur many times. The block of its first row sums all its rows, in order, for the columns of
// blockIdx.y, and writes the sum once; the blocks of its later rows find the first row and return. A block
// compares as many ids at a time as it has threads.
template <Write W, class T, class G>
__global__ void embedding_bwd_kernel(RowShape s, int64_t vocab, const int32_t* ids, const T* dy, G* dtable) {
  __shared__ uint32_t found[kThreads / kWarp];  // a bit for each row that has this block's id
  const int64_t mine = blockIdx.x, c = int64_t(blockIdx.y) * blockDim.x + threadIdx.x;
  const int64_t id = id_of(mine, vocab, ids);
  if (id < 0) return;  // the whole block returns
  float sum = 0;
  for (int64_t begin = 0; begin < s.rows; begin += blockDim.x) {
    const int64_t looked_at = begin + threadIdx.x;
    const uint32_t of_warp = __ballot_sync(kAllLanes, looked_at < s.rows && ids[looked_at] == id);
    if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp] = of_warp;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / kWarp; ++w) {
      int64_t r = begin + w * kWarp;
      for (uint32_t rest = found[w]; rest != 0; rest >>= 1, ++r) {
        if (!(rest & 1)) continue;
        if (r < mine) return;  // the whole block returns
        if (c < s.cols) sum += load(dy, r * s.cols + c);
      }
    }
    __syncthreads();  // all have read `found`
  }
  if (c < s.cols) store<W>(dtable, id * s.cols + c, sum);
}

void embedding_bwd(const Ctx& ctx, RowShape s, int64_t vocab, CBuf ids, CBuf dy, Out dtable) {
  check_embedding_bwd(ids, dy, dtable);
  if (!dtable.wanted()) return;
  if (dtable.w == Write::Set) fill(ctx, vocab * s.cols, dtable, 0.0);
  const unsigned threads = row_threads(s.cols);
  const dim3 grid(unsigned(s.rows), blocks_for(s.cols, threads));
  visit_gpu("embedding_bwd", dy.t, [&]<class T>() {
    visit_out("embedding_bwd", dtable, [&]<class G, Write W>() {
      launch(ctx, "embedding_bwd", grid, threads, 0, embedding_bwd_kernel<W, T, G>, s, vocab,
             ids.as<int32_t>(), dy.as<T>(), dtable.as<G>());
    });
  });
}

}  // namespace gradus::GRADUS_GPU
