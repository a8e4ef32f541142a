// The innermost part of the matrix product: a tile of C that stays in registers while K runs.
#pragma once
#include <cstdint>

namespace gradus::cpu {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRows = 12;  // 24 accumulators of 32 registers
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kRows = 6;  // 12 of 16
#else
constexpr int kVectorBytes = 16, kRows = 6;
#endif
constexpr int kVectors = 2;  // the tile is kRows x (kVectors vectors)

template <class S>
struct Tile {
  typedef S Vector __attribute__((vector_size(kVectorBytes), aligned(sizeof(S)), may_alias));
  static constexpr int kLanes = kVectorBytes / int(sizeof(S)), kCols = kVectors * kLanes;
};

// out[kRows][kCols] = sum over k < K of the outer product of a panel of A (kRows values a step) and of B
// (kCols a step).
template <class S>
void multiply_tile(int64_t K, const S* a, const S* b, S* out);

}  // namespace gradus::cpu
