#include "kernels/cpu/gemm.h"

#include "kernels/cpu/io.h"
#include "kernels/cpu/panels.h"

namespace gradus::cpu {

namespace {

// The depth of a block of K, in words. A panel of B of this depth stays in L2 while panels of A are
// multiplied with it. 2048 floats; half as many for AMX, whose panels of A are larger.
template <class W>
constexpr int64_t kDepth = (Tile<W>::kMatrices ? 4096 : 8192) / int64_t(sizeof(W));
// Words of K after which the next panel of A is taken: for AMX, these words of B's panel stay in L1.
template <class W>
constexpr int64_t kPass = Tile<W>::kMatrices ? 128 : kDepth<W>;
constexpr int64_t kChunkPanels = 4;  // panels of A that one thread packs and multiplies at a time
template <class W>
constexpr int64_t kChunkRows = kChunkPanels* Tile<W>::kRows;

// Writes the valid part of a tile of finished sums to C.
template <class S, class TC>
void write_tile(const S* tile, int64_t rows, int64_t cols, TC* c, int64_t ldc, S alpha, Write write) {
  constexpr int kCols = Tile<S>::kCols;  // words have the size of sums
  visit_write(write, [&]<Write W>() {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) store<W>(c + i * ldc, j, acc_t<TC>(alpha * tile[i * kCols + j]));
  });
}

// The parts of the workspace: half for a block of B, a quarter for partial sums (dense tiles), a quarter for
// the threads' rows of A.
template <class W>
struct Buffers {
  using Sum = typename Word<W>::Sum;
  static_assert(sizeof(Sum) == sizeof(W));
  static constexpr int kCols = Tile<W>::kCols;
  W *a, *b;
  Sum* partial;
  int64_t depth, cols, rows, threads;  // of a block of B; of the partial sums; that have rows of A

  Buffers(void* workspace, int64_t bytes, int64_t words) {
    const int64_t quarter = bytes / 4 / int64_t(sizeof(W)) / 64 * 64;
    a = static_cast<W*>(workspace);
    partial = static_cast<Sum*>(workspace) + quarter;
    b = a + 2 * quarter;
    depth = std::clamp<int64_t>(words, 1, kDepth<W>);
    cols = std::clamp<int64_t>(2 * quarter / depth / kCols * kCols, kCols, 1024);
    rows = std::max<int64_t>(quarter / cols / kChunkRows<W> * kChunkRows<W>, kChunkRows<W>);
    threads = std::max<int64_t>(quarter / (kChunkRows<W> * depth), 1);
  }
};

// A block of K: `numbers` numbers from k0 on, in `words` words.
struct Depth {
  int64_t k0, numbers, words;
};

// Multiplies rows [i0, i0 + rows) with the packed block of B (`cols` columns from j0).
template <class W, class TA, class TB, class TC>
void multiply_chunk(const GemmProblem<TA, TB, TC>& p, int64_t i0, int64_t rows, int64_t j0, int64_t cols,
                    Depth d, const W* b, W* a, typename Word<W>::Sum* partial) {
  using Sum = typename Word<W>::Sum;
  constexpr int kRows = Tile<W>::kRows, kCols = Tile<W>::kCols;
  const bool first = d.k0 == 0, last = d.k0 + d.numbers == p.K;
  for (int64_t i = 0; i < rows; i += kRows)
    pack_a(d.numbers, d.words, std::min<int64_t>(kRows, rows - i), p.a + (i0 + i) * p.a_row + d.k0 * p.a_col,
           p.a_row, p.a_col, a + i * d.words);
  const TileRegisters<W> registers;
  alignas(64) Sum tiles[kChunkPanels][kRows * kCols];
  for (int64_t j = 0; j < cols; j += kCols) {
    for (int64_t i = 0; i < rows; i += kRows) std::fill_n(tiles[i / kRows], kRows * kCols, Sum(0));
    if (last)  // prefetches C while the tiles are multiplied
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t e = 0; e < kCols; e += 64 / int64_t(sizeof(TC)))
          __builtin_prefetch(p.c + (i0 + i) * p.ldc + j0 + j + e, 1);
    for (int64_t k = 0; k < d.words; k += kPass<W>)
      for (int64_t i = 0; i < rows; i += kRows)
        multiply_tile(std::min(kPass<W>, d.words - k), a + i * d.words + k * kRows,
                      b + j * d.words + k * kCols, tiles[i / kRows]);
    for (int64_t i = 0; i < rows; i += kRows) {
      Sum* const tile = tiles[i / kRows];
      Sum* sums = partial + (i / kRows * (round_up(cols, kCols) / kCols) + j / kCols) * kRows * kCols;
      if (!first)
        for (int e = 0; e < kRows * kCols; ++e) tile[e] += sums[e];
      if (last)
        write_tile(tile, std::min<int64_t>(kRows, rows - i), std::min<int64_t>(kCols, cols - j),
                   p.c + (i0 + i) * p.ldc + j0 + j, p.ldc, Sum(p.alpha), p.write);
      else
        std::copy(tile, tile + kRows * kCols, sums);
    }
  }
}

}  // namespace

template <class S>
int64_t gemm_bytes(int64_t K) {
  const auto words = [&]<class W>(W) {  // in a thread's rows of A
    return kChunkRows<W> * std::clamp<int64_t>(words_of<W>(K), 1, kDepth<W>);
  };
  return 4 * round_up(std::max(words(S()), words(Bf16Pair())), 64) * int64_t(sizeof(S));
}
template int64_t gemm_bytes<float>(int64_t);
template int64_t gemm_bytes<double>(int64_t);

template <class TA, class TB, class TC>
void gemm(const GemmProblem<TA, TB, TC>& p, void* workspace, int64_t bytes) {
  using W = WordOf<TA, TB>;
  constexpr int kRows = Tile<W>::kRows, kCols = Tile<W>::kCols;
  constexpr int64_t kNumbers = Word<W>::kNumbers;
  if (p.M == 0 || p.N == 0) return;
  const int64_t words = std::max<int64_t>(words_of<W>(p.K), 1);  // K = 0 still writes zeros
  const Buffers<W> buffers(workspace, bytes, words);
  const bool worth_it = p.M * p.N * p.K > 64 * 64 * 64;
  const int64_t team = worth_it ? std::min<int64_t>(thread_count(), buffers.threads) : 1;
#pragma omp parallel num_threads(team) if (team > 1)
  {
    const int64_t me = team > 1 ? thread_index() : 0;
    W* a = buffers.a + me * (kChunkRows<W> * buffers.depth);
    const int64_t most_rows = words > kDepth<W> ? buffers.rows : p.M;  // one block of K needs no sums
    for (int64_t i0 = 0; i0 < p.M; i0 += most_rows)
      for (int64_t j0 = 0; j0 < p.N; j0 += buffers.cols)
        for (int64_t k0 = 0; k0 < words * kNumbers; k0 += kDepth<W> * kNumbers) {
          const int64_t rows = std::min(most_rows, p.M - i0);
          const int64_t cols = std::min(buffers.cols, p.N - j0);
          const int64_t numbers = std::min(kDepth<W> * kNumbers, p.K - k0);
          const Depth d{k0, numbers, words_of<W>(numbers)};
          const int64_t panels = (cols + kCols - 1) / kCols, row_panels = (rows + kRows - 1) / kRows;
          // The same number of chunks for each thread, or nearly: otherwise the last ones would keep a single
          // thread busy.
          const int64_t chunks = round_up((row_panels + kChunkPanels - 1) / kChunkPanels, team);
#pragma omp for schedule(static)
          for (int64_t q = 0; q < panels; ++q)
            pack_b(numbers, d.words, std::min<int64_t>(kCols, cols - q * kCols),
                   p.b + k0 * p.b_row + (j0 + q * kCols) * p.b_col, p.b_col, p.b_row,
                   buffers.b + q * kCols * d.words);
#pragma omp for schedule(static)
          for (int64_t q = 0; q < chunks; ++q) {
            const int64_t begin = row_panels * q / chunks * kRows;
            const int64_t end = std::min(row_panels * (q + 1) / chunks * kRows, rows);
            multiply_chunk(p, i0 + begin, end - begin, j0, cols, d, buffers.b, a,
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
