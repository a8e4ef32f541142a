#include "kernels/cpu/gemm.h"

#include <cstring>

#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/io.h"

namespace gradus::cpu {

namespace {

// A block of K, in words: a panel of B of this depth stays in L2 while panels of A pass by. 2048 floats; half
// as many for AMX, whose panels of A are larger.
template <class W>
constexpr int64_t kDepth = (Tile<W>::kMatrices ? 4096 : 8192) / int64_t(sizeof(W));
// Words of K after which the next panel of A is taken: for AMX so many of B's panel that they stay in L1.
template <class W>
constexpr int64_t kPass = Tile<W>::kMatrices ? 128 : kDepth<W>;
constexpr int64_t kChunkPanels = 4;  // panels of A that one thread packs and multiplies at a time
template <class W>
constexpr int64_t kChunkRows = kChunkPanels* Tile<W>::kRows;

// The words of panels whose matrices have the types TA and TB.
template <class TA, class TB>
using WordOf = std::conditional_t<kHasPairs && std::is_same_v<TA, bf16> && std::is_same_v<TB, bf16>, Bf16Pair,
                                  acc_t<TA>>;

// panel[k * width + i] = word k of line i, for 4 of both: a transpose in registers. Words have 32 bits; lines
// are `line` bytes apart.
inline void transpose_4x4(const char* x, int64_t line, int width, float* panel) {
  typedef float Quad __attribute__((vector_size(16), aligned(2), may_alias));
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

// The word that begins with *x; the numbers of a line are `step` apart.
template <class W, class T>
W word(const T* x, int64_t step) {
  if constexpr (Word<W>::kNumbers == 2)
    return {x[0], x[step]};
  else
    return W(*x);
}

// Packs K numbers of each of `count` (<= width) lines of a matrix into a panel of words: panel[k * width + i]
// is word k of line i; missing lines, and what a last word lacks, are zeros. Number k of line i is at x[i *
// line + k * step].
template <class W, class T>
void pack_panel(int64_t K, int64_t count, int width, const T* x, int64_t line, int64_t step, W* panel) {
  constexpr int64_t kNumbers = Word<W>::kNumbers;
  const int64_t words = K / kNumbers;
  const auto word_of = [&](int64_t i, int64_t k) {
    return word<W>(x + i * line + k * kNumbers * step, step);
  };
  if constexpr (kNumbers == 2)
    if (K % 2 == 1)
      for (int64_t i = 0; i < width; ++i)
        panel[words * width + i] = {i < count ? x[i * line + (K - 1) * step] : T(0), T(0)};
  if (line == 1 && count == width) {
    for (int64_t k = 0; k < words; ++k)
      for (int i = 0; i < width; ++i) panel[k * width + i] = word_of(i, k);
    return;
  }
  constexpr int64_t kBlock = 16;  // words at a time, so that lines are read in whole cache lines
  for (int64_t k0 = 0; k0 < words; k0 += kBlock) {
    const int64_t k1 = std::min(k0 + kBlock, words);
    int64_t i = 0;
    if constexpr (sizeof(T) * kNumbers == 4 && sizeof(W) == 4)  // a word lies in memory as it is packed
      if (step == 1 && k1 - k0 == kBlock)
        for (; i + 4 <= count; i += 4)
          for (int64_t k = k0; k < k1; k += 4)
            transpose_4x4(reinterpret_cast<const char*>(x + i * line + k * kNumbers), line * sizeof(T), width,
                          reinterpret_cast<float*>(panel + k * width + i));
    for (; i < count; ++i)
      for (int64_t k = k0; k < k1; ++k) panel[k * width + i] = word_of(i, k);
    for (; i < width; ++i)
      for (int64_t k = k0; k < k1; ++k) panel[k * width + i] = W();
  }
}

// For AMX. Of B: word k of line i is at panel[k * width + i], as always; of A, at panel[(k - k % kDeep) *
// width + i * kDeep + k % kDeep]. Words from the end of K up to a multiple of kDeep are zeros.
template <class W, class T>
void pack_b(int64_t K, int64_t words, int64_t count, const T* x, int64_t line, int64_t step, W* panel) {
  constexpr int kWidth = Tile<W>::kCols;
  pack_panel(K, count, kWidth, x, line, step, panel);
  const int64_t packed = (K + Word<W>::kNumbers - 1) / Word<W>::kNumbers;
  std::fill(panel + packed * kWidth, panel + words * kWidth, W());
}
template <class W, class T>
void pack_a(int64_t K, int64_t words, int64_t count, const T* x, int64_t line, int64_t step, W* panel) {
  constexpr int kWidth = Tile<W>::kRows, kDeep = Tile<W>::kDeep, kNumbers = kDeep * Word<W>::kNumbers;
  if constexpr (kDeep == 1) {
    pack_panel(K, count, kWidth, x, line, step, panel);
  } else {
    for (; words > 0; words -= kDeep, K -= kNumbers, x += kNumbers * step, panel += kDeep * kWidth) {
      if (step == 1 && K >= kNumbers && count == kWidth) {  // a line's words lie as they shall
        for (int64_t i = 0; i < kWidth; ++i)
          std::memcpy(static_cast<void*>(panel + i * kDeep), x + i * line, kDeep * sizeof(W));
        continue;
      }
      W part[kDeep * kWidth] = {};
      pack_panel(std::min<int64_t>(K, kNumbers), count, kWidth, x, line, step, part);
      for (int k = 0; k < kDeep; k += 4)
        for (int i = 0; i < kWidth; i += 4)
          transpose_4x4(reinterpret_cast<const char*>(part + k * kWidth + i), kWidth * sizeof(W), kDeep,
                        reinterpret_cast<float*>(panel + i * kDeep + k));
    }
  }
}

// Writes the valid part of a tile to C, or first adds it to what earlier blocks of K gave (`partial`, dense
// tiles).
template <class S, class TC>
void write_tile(const S* tile, int64_t rows, int64_t cols, TC* c, int64_t ldc, S alpha, Write write) {
  constexpr int kCols = Tile<S>::kCols;  // words have the size of sums
  visit_write(write, [&]<Write W>() {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) store<W>(c + i * ldc, j, acc_t<TC>(alpha * tile[i * kCols + j]));
  });
}

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// How the workspace is cut: half for a block of B, a quarter for partial sums, a quarter for the threads'
// rows of A.
template <class W>
struct Buffers {
  using Sum = typename Word<W>::Sum;
  static_assert(sizeof(Sum) == sizeof(W));
  static constexpr int kCols = Tile<W>::kCols;
  W *a, *b;
  Sum* partial;
  int64_t depth, cols, rows, threads;  // of a block of B; of the partial sums; who can have rows of A

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

// A block of K: `numbers` of it from k0 on, which are so many words.
struct Depth {
  int64_t k0, numbers, words;
};

// Rows [i0, i0 + rows) times the packed block of B (`cols` columns from j0).
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
  const auto words = [&]<class W>(W) {  // of a thread's rows of A
    constexpr int64_t kAtOnce = Word<W>::kNumbers * Tile<W>::kDeep;
    return kChunkRows<W> * std::clamp<int64_t>(round_up(K, kAtOnce) / Word<W>::kNumbers, 1, kDepth<W>);
  };
  return 4 * round_up(std::max(words(S()), words(Bf16Pair())), 64) * int64_t(sizeof(S));
}
template int64_t gemm_bytes<float>(int64_t);
template int64_t gemm_bytes<double>(int64_t);

template <class TA, class TB, class TC>
void gemm(const GemmProblem<TA, TB, TC>& p, void* workspace, int64_t bytes) {
  using W = WordOf<TA, TB>;
  constexpr int kRows = Tile<W>::kRows, kCols = Tile<W>::kCols;
  constexpr int64_t kNumbers = Word<W>::kNumbers, kDeep = Tile<W>::kDeep;
  if (p.M == 0 || p.N == 0) return;
  const auto words_of = [](int64_t numbers) { return round_up(numbers, kNumbers * kDeep) / kNumbers; };
  const int64_t words = std::max<int64_t>(words_of(p.K), 1);  // K = 0 still writes zeros
  const Buffers<W> buffers(workspace, bytes, words);
  const bool worth_it = p.M * p.N * p.K > 64 * 64 * 64;
  const int64_t team = worth_it ? std::min<int64_t>(thread_count(), buffers.threads) : 1;
#pragma omp parallel num_threads(team) if (team > 1)
  {
    const int64_t me = team > 1 ? thread_index() : 0;
    W* a = buffers.a + me * (kChunkRows<W> * buffers.depth);
    const int64_t most_rows = words > kDepth<W> ? buffers.rows : p.M;  // only several blocks of K need sums
    for (int64_t i0 = 0; i0 < p.M; i0 += most_rows)
      for (int64_t j0 = 0; j0 < p.N; j0 += buffers.cols)
        for (int64_t k0 = 0; k0 < words * kNumbers; k0 += kDepth<W> * kNumbers) {
          const int64_t rows = std::min(most_rows, p.M - i0);
          const int64_t cols = std::min(buffers.cols, p.N - j0);
          const int64_t numbers = std::min(kDepth<W> * kNumbers, p.K - k0);
          const Depth d{k0, numbers, words_of(numbers)};
          const int64_t panels = (cols + kCols - 1) / kCols, row_panels = (rows + kRows - 1) / kRows;
          // As many chunks for each thread, or nearly: the last ones would otherwise keep a single thread
          // busy.
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
