// The innermost part of the matrix product: a tile of C that stays in registers while K runs.
#pragma once
#include <cstdint>

#include "kernels/dtype.h"

namespace gradus::cpu {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRows = 12;  // 24 accumulators of 32 registers
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kRows = 6;  // 12 of 16
#else
constexpr int kVectorBytes = 16, kRows = 6;
#endif
#if defined(__AVX512BF16__)
constexpr bool kHasPairs = true;  // an instruction for products of bf16 numbers, two by two
#else
constexpr bool kHasPairs = false;
#endif
constexpr int kVectors = 2;  // the tile is kRows x (kVectors vectors)

// Panels of A and B are made of words, W: a number (float, double), or two bf16 numbers that follow each
// other along K, for processors with an instruction that adds both products to a sum.
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
  static constexpr int kLanes = kVectorBytes / int(sizeof(W)), kCols = kVectors * kLanes;
};

// out[kRows][kCols] = sum over k < K words of the outer product of a panel of A (kRows words a step) and of B
// (kCols a step).
template <class W>
void multiply_tile(int64_t K, const W* a, const W* b, typename Word<W>::Sum* out);

}  // namespace gradus::cpu
