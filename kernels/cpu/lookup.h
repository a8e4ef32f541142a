// With AVX-512 one instruction looks up sixteen numbers: of a table of sixteen in a register (books of 4
// bits), or of one in memory.
#pragma once
#include "kernels/cpu/io.h"
#ifdef __AVX512BW__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 says it of its own header (bug 105593)
#include <immintrin.h>
#endif

namespace gradus::cpu {

// The numbers from -1 to 1 in cells 1/16 wide; cell k holds those above (k - 1)/16, up to k/16. In each there
// is one boundary at most: the nearest value's code is `code` up to it and `next` above it. If a book has two
// in one of them, cells are of no use.
struct Cells {
  float boundary[32];  // of cells 0 to 16, and then those from -15 on
  int32_t code[32], next[32];
  bool usable;

  explicit Cells(const QuantBook& book) : usable(book.count <= 16 && book.step == 0) {
    for (int k = -15, i = 0; usable && k <= 16; ++k) {
      const float begin = float(k - 1) / 16, end = float(k) / 16;
      while (k > -15 && book.boundary[i] <= begin) ++i;  // the first cell has all from -1 down
      const bool one = book.boundary[i] < end;
      boundary[k & 31] = one ? book.boundary[i] : NAN;
      code[k & 31] = book.code[i];
      next[k & 31] = book.code[i + one];
      usable = !(one && book.boundary[i + 1] < end);
    }
  }
};

#ifdef __AVX512BW__
constexpr bool kHasLookup = true;

inline void codes_by_lookup(int64_t n, const float* x, Normalize place, const Cells& cells, uint8_t* codes) {
  const __m512 boundary[2] = {_mm512_loadu_ps(cells.boundary), _mm512_loadu_ps(cells.boundary + 16)};
  const __m512i code[2] = {_mm512_loadu_si512(cells.code), _mm512_loadu_si512(cells.code + 16)},
                next[2] = {_mm512_loadu_si512(cells.next), _mm512_loadu_si512(cells.next + 16)};
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 there = __mmask16(n - i < 16 ? (1 << (n - i)) - 1 : 0xFFFF);
    const __m512 t = (_mm512_maskz_loadu_ps(there, x + i) - place.offset) * place.up * place.inverse;
    const __m512 inside = _mm512_max_ps(_mm512_min_ps(t * 16, _mm512_set1_ps(16)), _mm512_set1_ps(-15));
    const __m512i cell = _mm512_cvtps_epi32(_mm512_ceil_ps(inside));  // of it the lowest five bits count
    const __mmask16 above =
        _mm512_cmp_ps_mask(t, _mm512_permutex2var_ps(boundary[0], cell, boundary[1]), _CMP_GT_OQ);
    const __m512i found = _mm512_mask_blend_epi32(above, _mm512_permutex2var_epi32(code[0], cell, code[1]),
                                                  _mm512_permutex2var_epi32(next[0], cell, next[1]));
    _mm512_mask_cvtepi32_storeu_epi8(codes + i, there, found);
  }
}

// y = offset + scale value[code], of n codes, two in a byte; returns of how many: a multiple of 32.
inline int64_t values_by_lookup(int64_t n, const uint8_t* codes, const float* value, float scale,
                                float offset, float* y) {
  const __m512 table = offset + scale * _mm512_loadu_ps(value);
  const __m512i in_turn = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                upper = _mm512_set1_epi32(8);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512i two =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const __m512 first = _mm512_permutexvar_ps(_mm512_srli_epi32(two, 4), table),
                 second = _mm512_permutexvar_ps(two, table);  // looks at the lowest four bits
    _mm512_storeu_ps(y + i, _mm512_permutex2var_ps(first, in_turn, second));
    _mm512_storeu_ps(y + i + 16, _mm512_permutex2var_ps(first, in_turn + upper, second));
  }
  return i;
}

// codes[i] = nearest_or_below(book, place(x[i]))
inline void codes_by_cells(int64_t n, const float* x, Normalize place, const QuantBook& book,
                           uint8_t* codes) {
  static_assert(sizeof(QuantBook::Cell) == 4);
  const __m512i lower = _mm512_set1_epi32(0xFFFF);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 there = __mmask16(n - i < 16 ? (1 << (n - i)) - 1 : 0xFFFF);
    const __m512i t =
        _mm512_castps_si512((_mm512_maskz_loadu_ps(there, x + i) - place.offset) * place.up * place.inverse);
    const __m512i cell = _mm512_i32gather_epi32(_mm512_srli_epi32(t, 16), book.cell, 4);
    const __mmask16 above =
        _mm512_cmpgt_epu32_mask(_mm512_and_epi32(t, lower), _mm512_and_epi32(cell, lower));
    _mm512_mask_cvtepi32_storeu_epi8(codes + i, there,
                                     _mm512_mask_srli_epi32(_mm512_srli_epi32(cell, 16), above, cell, 24));
  }
}

// y = offset + scale value[code], of n codes; returns of how many: a multiple of 16.
inline int64_t values_by_gather(int64_t n, const uint8_t* codes, const float* value, float scale,
                                float offset, float* y) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i)));
    _mm512_storeu_ps(y + i, offset + scale * _mm512_i32gather_ps(code, value, 4));
  }
  return i;
}
#else
constexpr bool kHasLookup = false;
inline void codes_by_cells(int64_t, const float*, Normalize, const QuantBook&, uint8_t*) {}
inline int64_t values_by_gather(int64_t, const uint8_t*, const float*, float, float, float*) { return 0; }
inline void codes_by_lookup(int64_t, const float*, Normalize, const Cells&, uint8_t*) {}
inline int64_t values_by_lookup(int64_t, const uint8_t*, const float*, float, float, float*) { return 0; }
#endif

}  // namespace gradus::cpu
