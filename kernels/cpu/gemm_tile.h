// The innermost part of the matrix product: a tile of C that stays in registers in the loop over K.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/kernels.h"

namespace gradus::cpu {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRows = 12;  // 24 accumulators of 32 registers
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kRows = 6;  // 12 of 16
#else
constexpr int kVectorBytes = 16, kRows = 6;
#endif
// The instruction that multiplies pairs of bf16 numbers: for vectors (AVX-512-BF16), or for matrices of 16
// rows of 16 pairs (AMX).
enum class PairUnit : uint8_t { None, Vectors, Matrices };
#if defined(__AMX_BF16__)
constexpr PairUnit kPairUnit = PairUnit::Matrices;
#elif defined(__AVX512BF16__)
constexpr PairUnit kPairUnit = PairUnit::Vectors;
#else
constexpr PairUnit kPairUnit = PairUnit::None;
#endif
constexpr bool kHasPairs = kPairUnit != PairUnit::None;
constexpr int kVectors = 2;  // the tile is kRows x (kVectors vectors)

// Panels of A and B consist of words. A word, W, is a number (float, double), or two bf16 numbers that are
// adjacent along K, for processors with an instruction that adds both products to a sum. A panel is ordered
// by k, then by row or column; but for AMX, a panel of A by groups of kDeep of k, then by row, then by k.
struct Bf16Pair {
  bf16 first, second;
};
template <class W>
struct Word {
  using Sum = W;
  static constexpr int kNumbers = 1;
};
template <>
struct Word<Bf16Pair> {
  using Sum = float;
  static constexpr int kNumbers = 2;
};

template <class W>
struct Tile {
  typedef typename Word<W>::Sum Vector __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
  static constexpr bool kMatrices = std::is_same_v<W, Bf16Pair> && kPairUnit == PairUnit::Matrices;
  static constexpr int kLanes = kVectorBytes / int(sizeof(W)), kCols = kVectors * kLanes;
  static constexpr int kRows = kMatrices ? 32 : cpu::kRows;
  static constexpr int kDeep = kMatrices ? 16 : 1;  // panels have a multiple of this many words of K
};

// A thread may call multiply_tile while it has one of these, because AMX's registers must be set up.
template <class W>
struct TileRegisters {
  TileRegisters() {}
};
#ifdef __AMX_BF16__
template <>
struct TileRegisters<Bf16Pair> {
  TileRegisters();
  ~TileRegisters();
};
#endif

// Where multiply_tile reads word k of row i of A, a.p[i * a.row + k * a.col], and word k of column j of B,
// b.p[k * b.row + j]: in panels or, if words are plain numbers, in a matrix itself. One of a.row and a.col is
// 1. Pairs are read from panels only, and then row and col do not count.
template <class W>
struct TileRows {
  const W* p;
  int64_t row = 1, col = Tile<W>::kRows;
};
template <class W>
struct TileCols {
  const W* p;
  int64_t row = Tile<W>::kCols;
};
// Where it writes the sum of row i and column j: p[i * row + j].
template <class W>
struct TileSums {
  typename Word<W>::Sum* p;
  int64_t row = Tile<W>::kCols;
};

// The sum over k < K words of the outer product of kRows words of A and kCols words of B is computed in
// registers, from 0 on, and then written once.
template <class W>
void multiply_tile(int64_t K, const TileRows<W>& a, const TileCols<W>& b, const TileSums<W>& c, Write write);

}  // namespace gradus::cpu
