// The only file that is compiled with -ffp-contract=fast (Makefile): a multiplication and the addition of its
// result become one instruction, which rounds once. In all other files both round, as the contract of
// Write::Add requires.
#include "kernels/cpu/gemm_tile.h"

#include <bit>

#include "kernels/check.h"
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace gradus::cpu {

template <class S>
void multiply_tile(int64_t K, const S* __restrict a, const S* __restrict b,
                   typename Word<S>::Sum* __restrict sums) {
  using Vector = typename Tile<S>::Vector;
  constexpr int kLanes = Tile<S>::kLanes;
  Vector sum[kRows][kVectors] = {};
  const auto place = [&](int i, int v) -> Vector& {
    return *reinterpret_cast<Vector*>(sums + (i * kVectors + v) * kLanes);
  };
  // BEGIN SOLUTION 01.8
  for (int64_t k = 0; k < K; ++k, a += kRows, b += Tile<S>::kCols) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b), b1 = *reinterpret_cast<const Vector*>(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      sum[i][0] += a[i] * b0;
      sum[i][1] += a[i] * b1;
    }
  }
  // STUB: todo("01.8", "for each k, add the outer product of kRows values of a and kCols of b", K, a, b, kLanes);
  // END SOLUTION 01.8
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) place(i, v) += sum[i][v];
}

template void multiply_tile(int64_t, const float*, const float*, float*);
template void multiply_tile(int64_t, const double*, const double*, double*);

#if defined(__AMX_BF16__)
// The registers are matrices of 16 rows of 64 bytes: 0 to 3 have sums, 4 and 5 have A, 6 and 7 have B.
constexpr int kSide = 16, kRowBytes = 64;
struct alignas(64) Shapes {  // in the format of _tile_loadconfig
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  constexpr Shapes() {
    for (int r = 0; r < 8; ++r) row_bytes[r] = kRowBytes, rows[r] = kSide;
  }
};

TileRegisters<Bf16Pair>::TileRegisters() {
  // Linux gives a program these registers when it asks for them (its Documentation/arch/x86/xstate.rst).
  constexpr int kRequest = 0x1023, kTileData = 18;
  static const bool given = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  check(given, "this system does not let programs use AMX; build with ARCH='-march=native -mno-amx-bf16'");
  static constexpr Shapes kShapes;
  _tile_loadconfig(&kShapes);
}
TileRegisters<Bf16Pair>::~TileRegisters() { _tile_release(); }

// multiply_tile for pairs, 16 x 16 words of A and of B at a time. Subnormal numbers count as 0.
template <>
void multiply_tile(int64_t K, const Bf16Pair* __restrict a, const Bf16Pair* __restrict b,
                   float* __restrict sums) {
  using T = Tile<Bf16Pair>;
  static_assert(T::kRows == 2 * kSide && T::kCols == 2 * kSide && T::kDeep == kSide);
  constexpr int64_t kLine = T::kCols * sizeof(float);
  float* const below = sums + kSide * T::kCols;
  _tile_loadd(0, sums, kLine);
  _tile_loadd(1, sums + kSide, kLine);
  _tile_loadd(2, below, kLine);
  _tile_loadd(3, below + kSide, kLine);
  for (int64_t k = 0; k < K; k += kSide, a += kSide * T::kRows, b += kSide * T::kCols) {
    _tile_loadd(6, b, kLine);
    _tile_loadd(4, a, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kSide, kLine);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kSide * kSide, kRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kLine);
  _tile_stored(1, sums + kSide, kLine);
  _tile_stored(2, below, kLine);
  _tile_stored(3, below + kSide, kLine);
}
#elif defined(__AVX512BF16__)
// multiply_tile for pairs: sum += a.first * b.first + a.second * b.second, for 16 columns at a time.
// Subnormal numbers count as 0.
template <>
void multiply_tile(int64_t K, const Bf16Pair* __restrict a, const Bf16Pair* __restrict b,
                   float* __restrict sums) {
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
    for (int v = 0; v < kVectors; ++v) {
      float* const place = sums + (i * kVectors + v) * kLanes;
      _mm512_storeu_ps(place, _mm512_add_ps(_mm512_loadu_ps(place), sum[i][v]));
    }
}
#endif

}  // namespace gradus::cpu
