#include "kernels/cpu/gemm.h"

#include <unistd.h>

#include "kernels/cpu/io.h"
#include "kernels/cpu/panels.h"

namespace gradus::cpu {

namespace {

constexpr int64_t kDepth = 1024;  // the most words of K in a block
// Words of K after which the next panel of A is taken: for AMX, these words of B's panel stay in L1.
template <class W>
constexpr int64_t kPass = Tile<W>::kMatrices ? 128 : kDepth;
// Panels of A that one thread packs at a time.
template <class W>
constexpr int64_t kChunkPanels = Tile<W>::kMatrices ? 4 : 8;
template <class W>
constexpr int64_t kChunkRows = kChunkPanels<W>* Tile<W>::kRows;

struct Range {  // of rows or columns
  int64_t begin, end;
  int64_t panels(int64_t width) const { return (end - begin + width - 1) / width; }
  // Of this range's panels, as many as of any other part, or one fewer.
  Range part(int64_t width, int64_t number, int64_t parts) const {
    const int64_t n = panels(width);
    return {begin + n * number / parts * width, std::min(begin + n * (number + 1) / parts * width, end)};
  }
};

// A block of op(B), with the rows of C that it is multiplied for.
struct Block {
  Range rows, cols;
  int64_t k0, numbers, words;  // of K
  bool first, last;            // of the blocks of K
};

// In how many parts the rows are divided among a team, so that nobody has more tiles than necessary; the
// columns are divided in team / row_parts.
int64_t row_parts(int64_t team, int64_t row_panels, int64_t col_panels) {
  int64_t best = team, least = INT64_MAX / 20;
  for (int64_t parts = team; parts > 0; --parts) {
    if (team % parts != 0) continue;
    const int64_t others = team / parts;
    const int64_t most = ((row_panels + parts - 1) / parts) * ((col_panels + others - 1) / others);
    if (best == team ? 20 * most < 19 * least : most < least) best = parts, least = most;
  }
  return best;
}

// The bytes that stay in a core's L2 cache while other numbers pass through it.
int64_t bytes_that_stay() {
  static const int64_t bytes = [] {
    int64_t cache = 1 << 20;
#ifdef _SC_LEVEL2_CACHE_SIZE
    cache = std::max<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), cache);
#endif
    return cache / 2;
  }();
  return bytes;
}

// Writes the valid part of a tile of finished sums to C.
template <class S, class TC>
void write_tile(const S* tile, int64_t rows, int64_t cols, TC* c, int64_t ldc, S alpha, Write write) {
  constexpr int kCols = Tile<S>::kCols;  // words have the size of sums
  visit_write(write, [&]<Write W>() {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) store<W>(c + i * ldc, j, acc_t<TC>(alpha * tile[i * kCols + j]));
  });
}

// In a team of one there may be an enclosing parallel region, whose threads do other work.
void wait_for_team(int64_t team) {
  if (team == 1) return;
#pragma omp barrier
}

template <class TA, class TB, class TC>
struct Gemm {
  using W = WordOf<TA, TB>;
  using Sum = typename Word<W>::Sum;
  static_assert(sizeof(Sum) == sizeof(W));
  static constexpr int kRows = Tile<W>::kRows, kCols = Tile<W>::kCols, kNumbers = Word<W>::kNumbers;
  static constexpr int64_t kTile = kRows * kCols;

  const GemmProblem<TA, TB, TC>& p;
  int64_t words, depth;  // of K; the most in a block
  // Whether A and B are read in place, else from packed panels; and whether sums over blocks of K are written
  // to C, else to tiles apart. This changes no result.
  bool a_in_place = false, b_in_place = false, c_in_place = false;
  // The parts of the workspace: a quarter for the threads' rows of A, a quarter for partial sums (dense
  // tiles), half for a block of B.
  W *a, *b;
  Sum* partial;
  int64_t cols, rows, threads;  // the most in a block of B; of partial sums; that have rows of A

  Gemm(const GemmProblem<TA, TB, TC>& problem, void* workspace, int64_t bytes)
      : p(problem), words(std::max<int64_t>(words_of<W>(p.K), 1)) {  // K = 0 still writes zeros
    const int64_t blocks = (words + kDepth - 1) / kDepth;
    depth = round_up((words + blocks - 1) / blocks, Tile<W>::kDeep);
    // A matrix whose rows in memory are far apart is read in place only if it stays in the cache.
    const auto near = [&](int64_t row) { return depth * row * int64_t(sizeof(W)) <= bytes_that_stay(); };
    if constexpr (std::is_same_v<TA, W>) a_in_place = p.a_col == 1 || near(p.a_col);
    if constexpr (std::is_same_v<TB, W>) b_in_place = p.b_col == 1 && near(p.b_row);
    if constexpr (std::is_same_v<TC, Sum>)
      c_in_place = p.alpha == 1 && (p.write == Write::Set || words <= std::min(depth, kPass<W>));

    const int64_t quarter = bytes / 4 / int64_t(sizeof(W)) / 64 * 64;
    a = static_cast<W*>(workspace);
    partial = static_cast<Sum*>(workspace) + quarter;
    b = a + 2 * quarter;
    // Panels of A in place are each multiplied with a block of B that stays in the cache. Packed ones stay
    // there themselves while a wide block of B passes.
    const int64_t most = a_in_place ? bytes_that_stay() / int64_t(sizeof(W)) : 2 * quarter;
    cols = std::clamp<int64_t>(std::min(most, 2 * quarter) / depth / kCols * kCols, kCols, 1024);
    rows = c_in_place || words <= depth
               ? p.M
               : std::max<int64_t>(quarter / cols / kChunkRows<W> * kChunkRows<W>, kChunkRows<W>);
    threads = std::max<int64_t>(quarter / (kChunkRows<W> * depth), 1);
  }

  void run() const {
    const bool worth_it = p.M * p.N * p.K > 64 * 64 * 64;
    const int64_t team = worth_it ? std::min<int64_t>(thread_count(), threads) : 1;
    if (team == 1)
      return multiply(0, 1);  // most products of attention, in which a parallel region takes time
#pragma omp parallel num_threads(team)
    multiply(thread_index(), team_size());
  }

  // What thread `me` of a team does.
  void multiply(int64_t me, int64_t team) const {
    for (int64_t i0 = 0; i0 < p.M; i0 += rows)
      for (int64_t j0 = 0; j0 < p.N; j0 += cols)
        for (int64_t k0 = 0; k0 < words * kNumbers; k0 += depth * kNumbers) {
          const int64_t numbers = std::min(depth * kNumbers, p.K - k0);
          const Block d{{i0, std::min(i0 + rows, p.M)},
                        {j0, std::min(j0 + cols, p.N)},
                        k0,
                        numbers,
                        words_of<W>(numbers),
                        k0 == 0,
                        k0 + numbers == p.K};
          multiply_block(d, me, team);
        }
  }

  // Packs a part of the block of B, then multiplies a part of C.
  void multiply_block(const Block& d, int64_t me, int64_t team) const {
    const Range to_pack{b_in_place ? d.cols.end - (d.cols.end - d.cols.begin) % kCols : d.cols.begin,
                        d.cols.end};
    if (to_pack.begin < to_pack.end) {
      const Range mine = to_pack.part(kCols, me, team);
      pack_b(d.numbers, d.words, mine.end - mine.begin, p.b + d.k0 * p.b_row + mine.begin * p.b_col, p.b_col,
             p.b_row, b + (mine.begin - d.cols.begin) * d.words);
      wait_for_team(team);
    }
    const int64_t parts = row_parts(team, d.rows.panels(kRows), d.cols.panels(kCols)),
                  col_parts = team / parts;
    const Range my_rows = d.rows.part(kRows, me / col_parts, parts);
    const Range my_cols = d.cols.part(kCols, me % col_parts, col_parts);
    const int64_t chunks = (my_rows.panels(kRows) + kChunkPanels<W> - 1) / kChunkPanels<W>;
    for (int64_t q = 0; q < chunks; ++q)
      multiply_chunk(d, my_rows.part(kRows, q, chunks), my_cols, a + me * (kChunkRows<W> * depth));
    wait_for_team(team);
  }

  void multiply_chunk(const Block& d, Range rows, Range cols, W* packed) const {
    TileRows<W> panels[kChunkPanels<W>];
    int64_t i = rows.begin;
    if constexpr (std::is_same_v<TA, W>)
      for (; a_in_place && i + kRows <= rows.end; i += kRows)
        panels[(i - rows.begin) / kRows] = {p.a + i * p.a_row + d.k0 * p.a_col, p.a_row, p.a_col};
    pack_a(d.numbers, d.words, rows.end - i, p.a + i * p.a_row + d.k0 * p.a_col, p.a_row, p.a_col, packed);
    for (; i < rows.end; i += kRows, packed += kRows * d.words) panels[(i - rows.begin) / kRows] = {packed};

    const TileRegisters<W> registers;
    if (a_in_place)
      for (i = rows.begin; i < rows.end; i += kRows)
        for (int64_t j = cols.begin; j < cols.end; j += kCols)
          multiply_column(d, {i, std::min(i + kRows, rows.end)}, j, panels + (i - rows.begin) / kRows);
    else
      for (int64_t j = cols.begin; j < cols.end; j += kCols) multiply_column(d, rows, j, panels);
  }

  // The tiles of these rows and of the columns from j on.
  void multiply_column(const Block& d, Range rows, int64_t j, const TileRows<W>* panels) const {
    const int64_t cols = std::min<int64_t>(kCols, d.cols.end - j);
    TileCols<W> from{b + (j - d.cols.begin) * d.words};
    if constexpr (std::is_same_v<TB, W>)
      if (b_in_place && cols == kCols) from = {p.b + d.k0 * p.b_row + j, p.b_row};
    alignas(64) Sum sums[kChunkPanels<W>][kTile];
    TileSums<W> to[kChunkPanels<W>];
    for (int64_t i = rows.begin, q = 0; i < rows.end; i += kRows, ++q) {
      to[q] = {sums[q]};
      if constexpr (std::is_same_v<TC, Sum>)
        if (c_in_place && i + kRows <= rows.end && cols == kCols) to[q] = {p.c + i * p.ldc + j, p.ldc};
    }
    const Write to_c = d.first ? p.write : Write::Add;
    int64_t k = 0;
    do  // once even if K is 0
      for (int64_t q = 0; q < rows.panels(kRows); ++q) {
        multiply_tile<W>(std::min(kPass<W>, d.words - k),
                         {panels[q].p + k * panels[q].col, panels[q].row, panels[q].col},
                         {from.p + k * from.row, from.row}, to[q],
                         k > 0                ? Write::Add
                         : to[q].p == sums[q] ? Write::Set
                                              : to_c);
      }
    while ((k += kPass<W>) < d.words);
    for (int64_t i = rows.begin, q = 0; i < rows.end; i += kRows, ++q)
      if (to[q].p == sums[q]) finish(d, {i, std::min(i + kRows, rows.end)}, {j, j + cols}, sums[q]);
  }

  // Adds a tile's sums of one block of K to the others, and writes the last to C.
  void finish(const Block& d, Range i, Range j, Sum* sums) const {
    TC* const c = p.c + i.begin * p.ldc + j.begin;
    const int64_t valid_rows = i.end - i.begin, valid_cols = j.end - j.begin;
    if (c_in_place)
      return write_tile(sums, valid_rows, valid_cols, c, p.ldc, Sum(1), d.first ? p.write : Write::Add);
    const int64_t across = d.cols.panels(kCols);
    Sum* const before =
        partial + ((i.begin - d.rows.begin) / kRows * across + (j.begin - d.cols.begin) / kCols) * kTile;
    if (!d.first)
      for (int e = 0; e < kTile; ++e) sums[e] += before[e];
    if (d.last)
      write_tile(sums, valid_rows, valid_cols, c, p.ldc, Sum(p.alpha), p.write);
    else
      std::copy(sums, sums + kTile, before);
  }
};

}  // namespace

template <class S>
int64_t gemm_bytes(int64_t K) {
  const auto words = [&]<class W>(W) {  // in a thread's rows of A
    return kChunkRows<W> * std::clamp<int64_t>(words_of<W>(K), 1, kDepth);
  };
  return 4 * round_up(std::max(words(S()), words(Bf16Pair())), 64) * int64_t(sizeof(S));
}
template int64_t gemm_bytes<float>(int64_t);
template int64_t gemm_bytes<double>(int64_t);

template <class TA, class TB, class TC>
void gemm(const GemmProblem<TA, TB, TC>& problem, void* workspace, int64_t bytes) {
  if (problem.M > 0 && problem.N > 0) Gemm<TA, TB, TC>(problem, workspace, bytes).run();
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
