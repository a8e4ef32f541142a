// The parts of attention_flash: panels of q, k, v and dy, which multiply_tile reads, and tiles of sums, which
// it writes. A strip has the number of rows of a tile.
#pragma once
#include <numeric>

#include "kernels/cpu/attention.h"

namespace gradus::cpu {

// The number of keys of [j0, j0 + cols) that query t sees.
inline int64_t seen_by(const AttentionShape& s, int64_t t, int64_t j0, int64_t cols) {
  return s.mask == Mask::Causal ? std::clamp<int64_t>(t + 1 - j0, 0, cols) : cols;
}

// Heads of D dimensions of type T, as panels and tiles, and a task's share of the workspace. Scores are
// products of numbers of type T, which some machines multiply in pairs. Weights are not rounded to T, so all
// other products are of type S.
template <class T>
struct HeadTiles {
  using W = WordOf<T, T>;  // words of q, k, v and dy in the products for scores and dP
  using S = acc_t<T>;      // scores, weights, sums; and words of products with weights
  static constexpr int64_t kStrip = std::lcm(Tile<W>::kRows, Tile<S>::kRows);  // rows
  static constexpr int64_t kCols = Tile<S>::kCols, kTile = kStrip * kCols;
  static_assert(Tile<W>::kCols == kCols);
  int64_t depth;   // words W of D numbers
  int64_t across;  // tiles for D columns
  Cut cut;         // the arrays in the task's share of the workspace
  HeadTiles(int64_t D, void* share) : depth(words_of<W>(D)), across(tiles_of(D)), cut(share) {}
  W* take_words(int64_t n) { return cut.take<W>(n); }
  S* take(int64_t n) { return cut.take<S>(n); }

  static int64_t tiles_of(int64_t cols) { return ceil_div(cols, kCols); }
  // (lines, D) sums lie strip by strip, tile by tile. sums(): how many numbers that takes; row(): the offset
  // of row i in the first tile of its strip.
  int64_t sums(int64_t lines) const { return round_up(lines, kStrip) * across * kCols; }
  int64_t row(int64_t i) const { return i / kStrip * across * kTile + i % kStrip * kCols; }

  // Packs a matrix into panels of rows (left factor) or of columns (right factor). It has `lines` lines of
  // `numbers` numbers each; number k of line i is x[i * line + k * step].
  template <class X, class Number>
  static void pack_rows(int64_t lines, int64_t numbers, const Number* x, int64_t line, int64_t step,
                        X* panels) {
    constexpr int64_t kRows = Tile<X>::kRows;
    const int64_t words = words_of<X>(numbers);
    for (int64_t i = 0; i < lines; i += kRows)
      pack_a(numbers, words, std::min(kRows, lines - i), x + i * line, line, step, panels + i * words);
  }
  template <class X>
  static void pack_cols(int64_t lines, int64_t numbers, const T* x, int64_t line, int64_t step, X* panels) {
    const int64_t words = words_of<X>(numbers);
    for (int64_t i = 0; i < lines; i += kCols)
      pack_b(numbers, words, std::min(kCols, lines - i), x + i * line, line, step, panels + i * words);
  }
  // Packs the first n columns of a strip's scores into panels of rows.
  static void pack_scores(int64_t n, const S* scores, S* panels) {
    constexpr int64_t kRows = Tile<S>::kRows;
    for (int64_t r = 0; r < kStrip; r += kRows)
      for (int64_t j = 0; j < n; j += kCols)
        pack_rows(kRows, std::min(kCols, n - j), scores + j / kCols * kTile + r * kCols, kCols, 1,
                  panels + r * n + j * kRows);
  }
  // A strip of `tiles` tiles of sums += its panels of rows (`words` words each) times `tiles` panels of
  // columns, each of `stride` words, of which the first `words` count.
  template <class X>
  static void multiply(int64_t words, const X* rows, const X* cols, int64_t stride, int64_t tiles, S* sums) {
    for (int64_t c = 0; c < tiles; ++c)
      for (int64_t r = 0; r < kStrip; r += Tile<X>::kRows)
        multiply_tile<X>(words, {rows + r * words}, {cols + c * kCols * stride},
                         {sums + c * kTile + r * kCols}, Write::Add);
  }
  // The dot products of a strip's vectors with those of `tiles` panels of columns.
  void dots(const W* strip, const W* cols, int64_t tiles, S* sums) const {
    std::fill_n(sums, tiles * kTile, S(0));
    multiply(depth, strip, cols, depth, tiles, sums);
  }

  // out <- factor * (rows, D) sums; the rows of out lie `time` elements apart. nullptr: not wanted.
  [[gnu::flatten, gnu::noinline]] void write(int64_t rows, int64_t D, const S* sums, S factor, T* out,
                                             int64_t time, Write write) const {
    if (!out) return;
    visit_write(write, [&]<Write Wr>() {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t d0 = 0; d0 < D; d0 += kCols) {
          const S* const from = sums + row(i) + d0 / kCols * kTile;
          T* const to = out + i * time + d0;
          const int64_t cols = std::min(kCols, D - d0);
#pragma omp simd
          for (int64_t d = 0; d < cols; ++d) store<Wr>(to, d, factor * from[d]);
        }
    });
  }

  // The next functions take a row of a strip of scores: x[0, kCols) in each of its tiles.
  static S scale_max(S* x, int64_t tiles, int64_t seen, S scale, S most) {
    return cpu::scale_max<kCols>(x, tiles, kTile, seen, scale, most);
  }
  static S exp_sum(S* x, int64_t tiles, S max) { return cpu::exp_sum<kCols>(x, tiles, kTile, max); }
  // x = 0 for the keys that the mask hides.
  static void hide(S* x, int64_t tiles, int64_t seen) {
    for (int64_t c = seen / kCols; c < tiles; ++c)
      std::fill(x + c * kTile + std::max<int64_t>(seen - c * kCols, 0), x + c * kTile + kCols, S(0));
  }
  // Copies x to consecutive columns, and zeros up to column `end`.
  static void copy(const S* x, int64_t tiles, int64_t end, S* to) {
    for (int64_t c = 0; c < tiles; ++c) std::copy_n(x + c * kTile, kCols, to + c * kCols);
    if (tiles * kCols < end) std::fill(to + tiles * kCols, to + end, S(0));
  }
  // Multiplies the weights of query t to keys [j0, j0 + seen) by their dropout factors.
  static void drop(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t, int64_t j0,
                   int64_t seen, S* x) {
    if (s.dropout > 0)
      for (int64_t j = 0; j < seen; j += kCols, x += kTile)
        cpu::drop(ctx, s, b, h, t, j0 + j, std::min(kCols, seen - j), x);
  }
};

}  // namespace gradus::cpu
