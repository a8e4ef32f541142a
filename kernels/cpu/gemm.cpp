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
// The most panels of A that are packed at a time.
template <class W>
constexpr int64_t kMostChunk = Tile<W>::kMatrices ? 4 : 8;

// The bytes that stay in a core's L2 cache while other numbers pass through it.
int64_t bytes_that_stay() {
  static const int64_t bytes = [] {
    int64_t cache = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    constexpr int64_t kUsual = 1 << 20;  // if the system does not say
    return (cache > 0 ? cache : kUsual) / 2;
  }();
  return bytes;
}

// The words of K in a block: the blocks have the same size, or nearly.
template <class W>
int64_t depth_of(int64_t K) {
  const int64_t words = std::max<int64_t>(words_of<W>(K), 1), blocks = ceil_div(words, kDepth);
  return round_up(ceil_div(words, blocks), Tile<W>::kDeep);
}
template <class W>
int64_t columns(int64_t bytes, int64_t depth) {  // whole panels
  constexpr int64_t kCols = Tile<W>::kCols;
  return std::clamp<int64_t>(bytes / (depth * int64_t(sizeof(W))) / kCols * kCols, kCols, 1024);
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

struct Block {  // of columns and of K
  int64_t j0, cols, k0, numbers, words;
  bool first, last;  // of the blocks of K
};

// A product on one thread.
template <class TA, class TB, class TC>
struct Gemm {
  using W = WordOf<TA, TB>;
  using Sum = typename Word<W>::Sum;
  static_assert(sizeof(Sum) == sizeof(W));
  static constexpr int kRows = Tile<W>::kRows, kCols = Tile<W>::kCols, kNumbers = Word<W>::kNumbers;
  static constexpr int64_t kTile = kRows * kCols;

  GemmProblem<TA, TB, TC> p;
  int64_t words, depth;  // of K, at least 1, so that K = 0 writes zeros; in a block
  // Whether A and B are read in place, else from packed panels; and whether sums over blocks of K are written
  // to C, else to tiles apart. This changes no result.
  bool a_in_place = false, b_in_place = false, c_in_place = false;

  explicit Gemm(const GemmProblem<TA, TB, TC>& problem)
      : p(problem), words(std::max<int64_t>(words_of<W>(p.K), 1)), depth(depth_of<W>(p.K)) {
    // A matrix whose rows in memory are far apart is read in place only if it stays in the cache.
    const auto near = [&](int64_t row) { return depth * row * int64_t(sizeof(W)) <= bytes_that_stay(); };
    if constexpr (std::is_same_v<TA, W>) a_in_place = p.a_col == 1 || (p.a_row == 1 && near(p.a_col));
    if constexpr (std::is_same_v<TB, W>) b_in_place = p.b_col == 1 && near(p.b_row);
    // AMX goes on from the sums in C, which rounds in another way than adding a block's sums to them.
    const bool set = p.write == Write::Set, one_block = words <= depth;
    if constexpr (std::is_same_v<TC, Sum>)
      c_in_place = p.alpha == 1 && (Tile<W>::kMatrices ? set && one_block : set || one_block);
  }

  // The parts of the workspace: a quarter for a chunk of rows of A, a quarter for partial sums (dense tiles),
  // half for a block of B.
  W *a, *b;
  Sum* partial;
  int64_t chunk;  // panels
  void run(void* workspace, int64_t bytes) {
    const int64_t quarter = bytes / 4 / int64_t(sizeof(W)) / 64 * 64;
    a = static_cast<W*>(workspace);
    partial = static_cast<Sum*>(workspace) + quarter;
    b = a + 2 * quarter;
    chunk = std::clamp<int64_t>(quarter / (kRows * depth), 1, kMostChunk<W>);
    // Panels of A in place are each multiplied with a block of B that stays in the cache. Packed ones stay
    // there themselves while a wide block of B passes.
    const int64_t half = 2 * quarter * int64_t(sizeof(W));
    const int64_t cols = columns<W>(a_in_place ? std::min(bytes_that_stay(), half) : half, depth);
    const int64_t rows =
        c_in_place || words <= depth ? p.M : std::max<int64_t>(quarter / cols / kRows * kRows, kRows);
    for (int64_t i0 = 0; i0 < p.M; i0 += rows)
      for (int64_t j0 = 0; j0 < p.N; j0 += cols)
        for (int64_t k0 = 0; k0 < words * kNumbers; k0 += depth * kNumbers) {
          const int64_t numbers = std::min(depth * kNumbers, p.K - k0);
          multiply_block(
              {j0, std::min(cols, p.N - j0), k0, numbers, words_of<W>(numbers), k0 == 0, k0 + numbers == p.K},
              i0, std::min(i0 + rows, p.M));
        }
  }

  // Rows [begin, end) of C.
  void multiply_block(const Block& d, int64_t begin, int64_t end) const {
    const int64_t unpacked = b_in_place ? d.cols / kCols * kCols : 0;
    pack_b(d.numbers, d.words, d.cols - unpacked, p.b + d.k0 * p.b_row + (d.j0 + unpacked) * p.b_col, p.b_col,
           p.b_row, b + unpacked * d.words);
    const int64_t panels = ceil_div(end - begin, kRows), chunks = ceil_div(panels, chunk);
    for (int64_t q = 0; q < chunks; ++q)  // of nearly equal size
      multiply_chunk(d, begin + panels * q / chunks * kRows,
                     std::min(begin + panels * (q + 1) / chunks * kRows, end),
                     partial + panels * q / chunks * kTile * ceil_div(d.cols, kCols));
  }

  void multiply_chunk(const Block& d, int64_t begin, int64_t end, Sum* before) const {
    TileRows<W> panels[kMostChunk<W>];
    int64_t i = begin;
    if constexpr (std::is_same_v<TA, W>)
      for (; a_in_place && i + kRows <= end; i += kRows)
        panels[(i - begin) / kRows] = {p.a + i * p.a_row + d.k0 * p.a_col, p.a_row, p.a_col};
    pack_a(d.numbers, d.words, end - i, p.a + i * p.a_row + d.k0 * p.a_col, p.a_row, p.a_col, a);
    for (W* packed = a; i < end; i += kRows, packed += kRows * d.words)
      panels[(i - begin) / kRows] = {packed};

    const TileRegisters<W> registers;
    const int64_t across = ceil_div(d.cols, kCols) * kTile;  // partial sums of a panel of A
    if (a_in_place)
      for (i = begin; i < end; i += kRows, before += across)
        for (int64_t j = 0; j < d.cols; j += kCols)
          multiply_column(d, i, std::min(i + kRows, end), j, panels + (i - begin) / kRows, before);
    else
      for (int64_t j = 0; j < d.cols; j += kCols) multiply_column(d, begin, end, j, panels, before);
  }

  // Tiles of these rows, one below another; their first column is j in the block.
  void multiply_column(const Block& d, int64_t begin, int64_t end, int64_t j, const TileRows<W>* panels,
                       Sum* before) const {
    const int64_t cols = std::min<int64_t>(kCols, d.cols - j), count = ceil_div(end - begin, kRows);
    TC* const c = p.c + begin * p.ldc + d.j0 + j;
    TileCols<W> from{b + j * d.words};
    if constexpr (std::is_same_v<TB, W>)
      if (b_in_place && cols == kCols) from = {p.b + d.k0 * p.b_row + d.j0 + j, p.b_row};
    alignas(64) Sum apart[kMostChunk<W>][kTile];
    const auto is_in_place = [&](int64_t q) {
      return c_in_place && cols == kCols && begin + (q + 1) * kRows <= end;
    };
    int64_t k = 0;
    do  // once even if K is 0
      for (int64_t q = 0; q < count; ++q) {
        TileRows<W> rows = panels[q];
        rows.p += k * rows.col;
        TileSums<W> to{apart[q]};
        Write write = Write::Set;
        if constexpr (std::is_same_v<TC, Sum>)
          if (is_in_place(q)) to = {c + q * kRows * p.ldc, p.ldc}, write = d.first ? p.write : Write::Add;
        multiply_tile<W>(std::min(kPass<W>, d.words - k), rows, {from.p + k * from.row, from.row}, to,
                         k > 0 ? Write::Add : write);
      }
    while ((k += kPass<W>) < d.words);
    for (int64_t q = 0; q < count; ++q)
      if (!is_in_place(q))
        finish(d, apart[q], before + (q * ceil_div(d.cols, kCols) + j / kCols) * kTile,
               std::min<int64_t>(kRows, end - begin - q * kRows), cols, c + q * kRows * p.ldc);
  }

  // Adds a tile's sums over one block of K to those before, and writes the last ones to C.
  void finish(const Block& d, Sum* sums, Sum* before, int64_t rows, int64_t cols, TC* c) const {
    if (c_in_place) return write_tile(sums, rows, cols, c, p.ldc, Sum(1), d.first ? p.write : Write::Add);
    if (!d.first)
      for (int e = 0; e < kTile; ++e) sums[e] += before[e];
    if (d.last)
      write_tile(sums, rows, cols, c, p.ldc, Sum(p.alpha), p.write);
    else
      std::copy(sums, sums + kTile, before);
  }

  // Divides C among a team; returns the part of thread `me`. Parts differ by one panel of rows or columns.
  GemmProblem<TA, TB, TC> part(int64_t me, int64_t team) const {
    const int64_t rows = ceil_div(p.M, kRows), cols = ceil_div(p.N, kCols);
    int64_t best = 0, least = INT64_MAX;
    for (int64_t down = team; down > 0; --down) {
      if (team % down != 0) continue;
      const int64_t across = team / down, most_rows = ceil_div(rows, down),
                    most_cols = ceil_div(cols, across);
      // In tiles: to read a panel for the first time takes about as long as to multiply a tile; to write a
      // packed one, too.
      const int64_t time =
          most_rows * most_cols + (a_in_place ? 1 : 2) * most_rows + (b_in_place ? 1 : 2) * most_cols;
      if (time < least) best = down, least = time;
    }
    const int64_t across = team / best, i = me / across, j = me % across;
    GemmProblem<TA, TB, TC> mine = p;
    const int64_t i0 = rows * i / best * kRows, j0 = cols * j / across * kCols;
    mine.M = std::min(rows * (i + 1) / best * kRows, p.M) - i0;
    mine.N = std::min(cols * (j + 1) / across * kCols, p.N) - j0;
    mine.a += i0 * p.a_row, mine.b += j0 * p.b_col, mine.c += i0 * p.ldc + j0;
    return mine;
  }
};

}  // namespace

template <class S>
int64_t gemm_bytes(int64_t K) {
  const auto words = [&]<class W>(W) {  // a panel of rows, or half a panel of columns
    return std::max(Tile<W>::kRows, Tile<W>::kCols / 2) * std::clamp<int64_t>(words_of<W>(K), 1, kDepth);
  };
  return 4 * round_up(std::max(words(S()), words(Bf16Pair())), 64) * int64_t(sizeof(S));
}
template int64_t gemm_bytes<float>(int64_t);
template int64_t gemm_bytes<double>(int64_t);

int64_t gemm_columns(int64_t K) { return columns<float>(bytes_that_stay(), depth_of<float>(K)); }

template <class TA, class TB, class TC>
void gemm(const GemmProblem<TA, TB, TC>& problem, void* workspace, int64_t bytes) {
  const bool worth_it = problem.M * problem.N * problem.K > 64 * 64 * 64;
  const int64_t most = bytes / gemm_bytes<typename Gemm<TA, TB, TC>::Sum>(problem.K);
  Gemm<TA, TB, TC> whole(problem);
  const int64_t team = worth_it ? std::min<int64_t>(thread_count(), most) : 1;
  if (team == 1) return whole.run(workspace, bytes);
  const int64_t share = bytes / team / 64 * 64;
#pragma omp parallel for num_threads(team) schedule(static, 1)
  for (int64_t me = 0; me < team; ++me)
    Gemm<TA, TB, TC>(whole.part(me, team)).run(static_cast<char*>(workspace) + me * share, share);
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
