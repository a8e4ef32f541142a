// Compiled with -ffp-contract=fast, alone of all files (Makefile): a product and the sum it goes to are one
// instruction, rounded once. Everywhere else they are rounded one after the other, as the contract of
// Write::Add needs.
#include "kernels/cpu/gemm_tile.h"

#include <bit>

#include "kernels/check.h"
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace gradus::cpu {

template <class S>
void multiply_tile(int64_t K, const S* __restrict a, const S* __restrict b,
                   typename Word<S>::Sum* __restrict out) {
  using Vector = typename Tile<S>::Vector;
  constexpr int kLanes = Tile<S>::kLanes;
  Vector sum[kRows][kVectors] = {};
  // BEGIN SOLUTION 01.2
  for (int64_t k = 0; k < K; ++k, a += kRows, b += Tile<S>::kCols) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b), b1 = *reinterpret_cast<const Vector*>(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      sum[i][0] += a[i] * b0;
      sum[i][1] += a[i] * b1;
    }
  }
  // STUB: todo("01.2", "for each k, add the outer product of kRows values of a and kCols of b", K, a, b, kLanes);
  // END SOLUTION 01.2
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      *reinterpret_cast<Vector*>(out + (i * kVectors + v) * kLanes) = sum[i][v];
}

template void multiply_tile(int64_t, const float*, const float*, float*);
template void multiply_tile(int64_t, const double*, const double*, double*);

#ifdef __AVX512BF16__
// The same with pairs: sum += a.first * b.first + a.second * b.second, for 16 columns at a time. The
// instruction takes subnormal numbers for 0.
template <>
void multiply_tile(int64_t K, const Bf16Pair* __restrict a, const Bf16Pair* __restrict b,
                   float* __restrict out) {
  constexpr int kLanes = Tile<Bf16Pair>::kLanes;
  __m512 sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < K; ++k, a += kRows, b += Tile<Bf16Pair>::kCols) {
    const __m512bh b0 = __m512bh(_mm512_loadu_si512(b)), b1 = __m512bh(_mm512_loadu_si512(b + kLanes));
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const __m512bh pair = __m512bh(_mm512_set1_epi32(std::bit_cast<int>(a[i])));
      sum[i][0] = _mm512_dpbf16_ps(sum[i][0], pair, b0);
      sum[i][1] = _mm512_dpbf16_ps(sum[i][1], pair, b1);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(out + (i * kVectors + v) * kLanes, sum[i][v]);
}
#endif

}  // namespace gradus::cpu
