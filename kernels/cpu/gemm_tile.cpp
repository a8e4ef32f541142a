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

template <class W, class Vector>
static void write_sums(Vector (&sum)[kRows][kVectors], const TileSums<W>& to, Write write) {
  const auto place = [&](int i, int v) -> typename Tile<W>::Vector& {
    return *reinterpret_cast<typename Tile<W>::Vector*>(to.p + i * to.row + v * Tile<W>::kLanes);
  };
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      place(i, v) = write == Write::Add ? place(i, v) + sum[i][v] : sum[i][v];
}

// multiply_tile with A's strides `row` and `col`. One of them is a constant 1: the addresses of words that
// are next to each other need no arithmetic, which would take the place of multiplications in the processor.
using One = std::integral_constant<int64_t, 1>;
template <class S, class Row, class Col>
static void multiply(int64_t K, const S* words, Row row, Col col, const TileCols<S>& cols,
                     const TileSums<S>& to, Write write) {
  using Vector = typename Tile<S>::Vector;
  constexpr int kLanes = Tile<S>::kLanes;
  Vector sum[kRows][kVectors] = {};
  // An address of the processor is a pointer and 0, 1 or 2 times a register, so few registers have addresses.
  constexpr int kPointers = std::is_same_v<Row, One> ? 1 : kRows / 3, kEach = kRows / kPointers;
  const S *rows_at[kPointers] = {words}, *b = cols.p;
  for (int i = 1; i < kPointers; ++i) rows_at[i] = rows_at[i - 1] + kEach * row;
  const auto a = [&](int i) { return rows_at[i / kEach][i % kEach * row]; };  // word k of row i
  const auto next = [&](int64_t k) {
    constexpr int kAhead = 12;  // in a matrix, the next words are far from these
    __builtin_prefetch(b + kAhead * cols.row);
    __builtin_prefetch(b + kAhead * cols.row + kLanes);
    if constexpr (!std::is_same_v<Col, One>) __builtin_prefetch(rows_at[0] + kAhead * col);
    if (k < kRows) {
      __builtin_prefetch(to.p + k * to.row, 1);
      __builtin_prefetch(to.p + k * to.row + kLanes, 1);
    }
    for (const S*& row_at : rows_at) row_at += col;
    b += cols.row;
  };
  // BEGIN SOLUTION 01.8
#pragma GCC unroll 2
  for (int64_t k = 0; k < K; next(k), ++k) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b), b1 = *reinterpret_cast<const Vector*>(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      sum[i][0] += a(i) * b0;
      sum[i][1] += a(i) * b1;
    }
  }
  // STUB: todo("01.8", "for each k, add the outer product of kRows values of a and kCols of b", K, a, b, next);
  // END SOLUTION 01.8
  write_sums<S>(sum, to, write);
}

template <class S>
void multiply_tile(int64_t K, const TileRows<S>& rows, const TileCols<S>& cols, const TileSums<S>& to,
                   Write write) {
  if (rows.row == 1) return multiply(K, rows.p, One(), rows.col, cols, to, write);
  multiply(K, rows.p, rows.row, One(), cols, to, write);
}

template void multiply_tile(int64_t, const TileRows<float>&, const TileCols<float>&, const TileSums<float>&,
                            Write);
template void multiply_tile(int64_t, const TileRows<double>&, const TileCols<double>&,
                            const TileSums<double>&, Write);

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
void multiply_tile(int64_t K, const TileRows<Bf16Pair>& rows, const TileCols<Bf16Pair>& cols,
                   const TileSums<Bf16Pair>& to, Write write) {
  using T = Tile<Bf16Pair>;
  static_assert(T::kRows == 2 * kSide && T::kCols == 2 * kSide && T::kDeep == kSide);
  constexpr int64_t kLine = T::kCols * sizeof(float);
  const Bf16Pair *a = rows.p, *b = cols.p;
  float *const above = to.p, *const below = to.p + kSide * to.row;
  const int64_t line = to.row * int64_t(sizeof(float));
  if (write == Write::Add) {
    _tile_loadd(0, above, line);
    _tile_loadd(1, above + kSide, line);
    _tile_loadd(2, below, line);
    _tile_loadd(3, below + kSide, line);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
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
  _tile_stored(0, above, line);
  _tile_stored(1, above + kSide, line);
  _tile_stored(2, below, line);
  _tile_stored(3, below + kSide, line);
}
#elif defined(__AVX512BF16__)
// multiply_tile for pairs: sum += a.first * b.first + a.second * b.second, for 16 columns at a time.
// Subnormal numbers count as 0.
template <>
void multiply_tile(int64_t K, const TileRows<Bf16Pair>& rows, const TileCols<Bf16Pair>& cols,
                   const TileSums<Bf16Pair>& to, Write write) {
  constexpr int kLanes = Tile<Bf16Pair>::kLanes;
  const Bf16Pair *a = rows.p, *b = cols.p;
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
  write_sums<Bf16Pair>(sum, to, write);
}
#endif

}  // namespace gradus::cpu
