#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/io.h"

namespace gradus::cpu {

namespace {

// A block of K: a panel of B of this depth stays in L2 while panels of A pass by. 2048 floats.
template <class S>
constexpr int64_t kDepth = 8192 / int64_t(sizeof(S));
constexpr int64_t kChunkPanels = 4;  // panels of A that one thread packs and multiplies at a time
constexpr int64_t kChunkRows = kChunkPanels * kRows;

// panel[k * width + i] = x[i * line + k] for 4 values of i and of k: a transpose in registers.
inline void transpose_4x4(const float* x, int64_t line, int width, float* panel) {
  typedef float Quad __attribute__((vector_size(16), aligned(4), may_alias));
  const auto row = [&](int64_t i) { return *reinterpret_cast<const Quad*>(x + i * line); };
  const Quad r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  const Quad low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5),
             high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const Quad low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5),
             high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  const auto put = [&](int64_t k, Quad q) { *reinterpret_cast<Quad*>(panel + k * width) = q; };
  put(0, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
  put(1, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
  put(2, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
  put(3, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
}

// Packs `count` (<= width) lines of a matrix into a panel: panel[k * width + i] = line i at k; missing lines
// are zeros. Element (i, k) is at x[i * line + k * step].
template <class S, class T>
void pack_panel(int64_t K, int64_t count, int width, const T* x, int64_t line, int64_t step, S* panel) {
  if (line == 1 && count == width) {
    for (int64_t k = 0; k < K; ++k)
      for (int i = 0; i < width; ++i) panel[k * width + i] = S(x[k * step + i]);
    return;
  }
  constexpr int64_t kBlock = 16;  // k values at a time, so that lines are read in whole cache lines
  for (int64_t k0 = 0; k0 < K; k0 += kBlock) {
    const int64_t k1 = std::min(k0 + kBlock, K);
    int64_t i = 0;
    if constexpr (std::is_same_v<T, float>)
      if (step == 1 && k1 - k0 == kBlock)
        for (; i + 4 <= count; i += 4)
          for (int64_t k = k0; k < k1; k += 4)
            transpose_4x4(x + i * line + k, line, width, panel + k * width + i);
    for (; i < count; ++i)
      for (int64_t k = k0; k < k1; ++k) panel[k * width + i] = S(x[i * line + k * step]);
    for (; i < width; ++i)
      for (int64_t k = k0; k < k1; ++k) panel[k * width + i] = S(0);
  }
}

// Writes the valid part of a tile to C, or first adds it to what earlier blocks of K gave (`partial`, dense
// tiles).
template <class S, class TC>
void write_tile(const S* tile, int64_t rows, int64_t cols, TC* c, int64_t ldc, S alpha, Write write) {
  constexpr int kCols = Tile<S>::kCols;
  visit_write(write, [&]<Write W>() {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) store<W>(c + i * ldc, j, acc_t<TC>(alpha * tile[i * kCols + j]));
  });
}

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// How the workspace is cut: half for a block of B, a quarter for partial sums, a quarter for the threads'
// rows of A.
template <class S>
struct Buffers {
  static constexpr int kCols = Tile<S>::kCols;
  S *b, *partial, *a;
  int64_t depth, cols, rows, threads;  // of a block of B; of the partial sums; who can have rows of A

  Buffers(void* workspace, int64_t bytes, int64_t K) {
    const int64_t quarter = bytes / 4 / int64_t(sizeof(S)) / 64 * 64;
    a = static_cast<S*>(workspace);
    partial = a + quarter;
    b = partial + quarter;
    depth = std::clamp<int64_t>(K, 1, kDepth<S>);
    cols = std::clamp<int64_t>(2 * quarter / depth / kCols * kCols, kCols, 1024);
    rows = std::max<int64_t>(quarter / cols / kChunkRows * kChunkRows, kChunkRows);
    threads = std::max<int64_t>(quarter / (kChunkRows * depth), 1);
  }
};

// Rows [i0, i0 + rows) times the packed block of B (depth K, `cols` columns from j0).
template <class S, class TA, class TB, class TC>
void multiply_chunk(const GemmProblem<TA, TB, TC>& p, int64_t i0, int64_t rows, int64_t j0, int64_t cols,
                    int64_t k0, int64_t K, const S* b, S* a, S* partial) {
  constexpr int kCols = Tile<S>::kCols;
  const bool first = k0 == 0, last = k0 + K == p.K;
  for (int64_t i = 0; i < rows; i += kRows)
    pack_panel(K, std::min<int64_t>(kRows, rows - i), kRows, p.a + (i0 + i) * p.a_row + k0 * p.a_col, p.a_row,
               p.a_col, a + i * K);
  alignas(64) S tile[kRows * kCols];
  for (int64_t j = 0; j < cols; j += kCols)
    for (int64_t i = 0; i < rows; i += kRows) {
      multiply_tile(K, a + i * K, b + j * K, tile);
      S* sums = partial + (i / kRows * (round_up(cols, kCols) / kCols) + j / kCols) * kRows * kCols;
      if (!first)
        for (int e = 0; e < kRows * kCols; ++e) tile[e] += sums[e];
      if (last)
        write_tile(tile, std::min<int64_t>(kRows, rows - i), std::min<int64_t>(kCols, cols - j),
                   p.c + (i0 + i) * p.ldc + j0 + j, p.ldc, S(p.alpha), p.write);
      else
        std::copy(tile, tile + kRows * kCols, sums);
    }
}

}  // namespace

template <class S>
int64_t gemm_bytes(int64_t K) {
  return 4 * round_up(kChunkRows * std::clamp<int64_t>(K, 1, kDepth<S>), 64) * int64_t(sizeof(S));
}
template int64_t gemm_bytes<float>(int64_t);
template int64_t gemm_bytes<double>(int64_t);

template <class TA, class TB, class TC>
void gemm(const GemmProblem<TA, TB, TC>& p, void* workspace, int64_t bytes) {
  using S = acc_t<TA>;
  constexpr int kCols = Tile<S>::kCols;
  if (p.M == 0 || p.N == 0) return;
  const Buffers<S> buffers(workspace, bytes, p.K);
  const bool worth_it = p.M * p.N * p.K > 64 * 64 * 64;
  const int64_t team = worth_it ? std::min<int64_t>(thread_count(), buffers.threads) : 1;
  const int64_t depth = std::max<int64_t>(p.K, 1);  // K = 0 still writes zeros
#pragma omp parallel num_threads(team) if (team > 1)
  {
    const int64_t me = team > 1 ? thread_index() : 0;
    S* a = buffers.a + me * (kChunkRows * buffers.depth);
    for (int64_t i0 = 0; i0<p.M; i0 += depth> kDepth<S> ? buffers.rows : p.M)
      for (int64_t j0 = 0; j0 < p.N; j0 += buffers.cols)
        for (int64_t k0 = 0; k0 < depth; k0 += kDepth<S>) {
          const int64_t rows = depth > kDepth<S> ? std::min(buffers.rows, p.M - i0) : p.M;
          const int64_t cols = std::min(buffers.cols, p.N - j0), K = std::min(kDepth<S>, p.K - k0);
          const int64_t panels = (cols + kCols - 1) / kCols, row_panels = (rows + kRows - 1) / kRows;
          // As many chunks for each thread, or nearly: the last ones would otherwise keep a single thread
          // busy.
          const int64_t chunks = round_up((row_panels + kChunkPanels - 1) / kChunkPanels, team);
#pragma omp for schedule(static)
          for (int64_t q = 0; q < panels; ++q)
            pack_panel(K, std::min<int64_t>(kCols, cols - q * kCols), kCols,
                       p.b + k0 * p.b_row + (j0 + q * kCols) * p.b_col, p.b_col, p.b_row,
                       buffers.b + q * kCols * K);
#pragma omp for schedule(static)
          for (int64_t q = 0; q < chunks; ++q) {
            const int64_t begin = row_panels * q / chunks * kRows;
            const int64_t end = std::min(row_panels * (q + 1) / chunks * kRows, rows);
            multiply_chunk(p, i0 + begin, end - begin, j0, cols, k0, K, buffers.b, a,
                           buffers.partial + begin * round_up(cols, kCols));
          }
        }
  }
}

#define INSTANCE(TA, TB, TC) template void gemm(const GemmProblem<TA, TB, TC>&, void*, int64_t)
INSTANCE(double, double, double);
INSTANCE(float, float, float);
INSTANCE(bf16, bf16, bf16);
INSTANCE(bf16, bf16, float);
INSTANCE(float, bf16, bf16);
INSTANCE(float, bf16, float);
INSTANCE(fp16, fp16, fp16);
INSTANCE(fp16, fp16, float);
INSTANCE(float, fp16, fp16);
INSTANCE(float, fp16, float);

}  // namespace gradus::cpu
