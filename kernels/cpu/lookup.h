// With AVX-512 and its byte permutations one instruction looks up sixteen numbers or more: in a table of
// sixteen in a register (codebooks of 4 bits), in one of bytes in registers, or in memory.
#pragma once
#include <array>

#include "kernels/cpu/io.h"
#ifdef __AVX512VBMI__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 says it of its own header (bug 105593)
#include <immintrin.h>
#endif

namespace gradus::cpu {

// The numbers from -1 to 1 in cells 1/16 wide; cell k holds those above (k - 1)/16, up to k/16. In each there
// is one boundary at most: the nearest value's code is `code` up to it and `next` above it. If a codebook has
// two in one of them, cells are of no use.
struct Cells {
  float boundary[32];  // of cells 0 to 16, and then those from -15 on
  int32_t code[32], next[32];
  bool usable;

  explicit Cells(const Codebook& codebook) : usable(codebook.count <= 16 && codebook.step == 0) {
    for (int k = -15, i = 0; usable && k <= 16; ++k) {
      const float begin = float(k - 1) / 16, end = float(k) / 16;
      while (k > -15 && codebook.boundary[i] <= begin) ++i;  // the first cell has all from -1 down
      const bool one = codebook.boundary[i] < end;
      boundary[k & 31] = one ? codebook.boundary[i] : NAN;
      code[k & 31] = codebook.code[i];
      next[k & 31] = codebook.code[i + one];
      usable = !(one && codebook.boundary[i + 1] < end);
    }
  }
};

#ifdef __AVX512VBMI__
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

// codes[i] = nearest_or_below(codebook, place(x[i]))
inline void codes_by_cells(int64_t n, const float* x, Normalize place, const Codebook& codebook,
                           uint8_t* codes) {
  static_assert(sizeof(Codebook::Cell) == 4);
  const __m512i lower = _mm512_set1_epi32(0xFFFF);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 there = __mmask16(n - i < 16 ? (1 << (n - i)) - 1 : 0xFFFF);
    const __m512i t =
        _mm512_castps_si512((_mm512_maskz_loadu_ps(there, x + i) - place.offset) * place.up * place.inverse);
    const __m512i cell = _mm512_i32gather_epi32(_mm512_srli_epi32(t, 16), codebook.cell, 4);
    const __mmask16 above =
        _mm512_cmpgt_epu32_mask(_mm512_and_epi32(t, lower), _mm512_and_epi32(cell, lower));
    _mm512_mask_cvtepi32_storeu_epi8(codes + i, there,
                                     _mm512_mask_srli_epi32(_mm512_srli_epi32(cell, 16), above, cell, 24));
  }
}

// y = offset + scale value[code], of n codes; returns of how many: a multiple of 64. An instruction looks up
// the bytes of 64 codes in a table of 128 bytes: so byte by byte of the values. Interleaving two registers
// works within each quarter of them, and twice it makes numbers of bytes; the codes are put in such an order
// that the numbers come in theirs.
constexpr std::array<uint8_t, 64> order_to_interleave() {
  std::array<uint8_t, 64> order{};
  for (int i = 0; i < 64; ++i) order[size_t(i)] = uint8_t(i % 16 / 4 * 16 + i / 16 * 4 + i % 4);
  return order;
}
inline int64_t values_by_bytes(int64_t n, const uint8_t* codes, const float* value, float scale, float offset,
                               float* y) {
  uint8_t bytes[4][256];
  for (int k = 0; k < 4; ++k)
    for (int c = 0; c < 256; ++c) bytes[k][c] = uint8_t(std::bit_cast<uint32_t>(value[c]) >> 8 * k);
  constexpr std::array<uint8_t, 64> kOrder = order_to_interleave();
  const __m512i order = _mm512_loadu_si512(kOrder.data());
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i code = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(codes + i));
    __m512i found[4];
    for (int k = 0; k < 4; ++k) {
      const auto half = [&](int first) {
        return _mm512_permutex2var_epi8(_mm512_loadu_si512(bytes[k] + first), code,
                                        _mm512_loadu_si512(bytes[k] + first + 64));
      };
      found[k] = _mm512_mask_blend_epi8(_mm512_movepi8_mask(code), half(0), half(128));
    }
    const __m512i low[2] = {_mm512_unpacklo_epi8(found[0], found[1]),
                            _mm512_unpackhi_epi8(found[0], found[1])},
                  high[2] = {_mm512_unpacklo_epi8(found[2], found[3]),
                             _mm512_unpackhi_epi8(found[2], found[3])};
    for (int q = 0; q < 4; ++q) {
      const __m512i bits = q % 2 ? _mm512_unpackhi_epi16(low[q / 2], high[q / 2])
                                 : _mm512_unpacklo_epi16(low[q / 2], high[q / 2]);
      _mm512_storeu_ps(y + i + 16 * q, offset + scale * _mm512_castsi512_ps(bits));
    }
  }
  return i;
}
#else
constexpr bool kHasLookup = false;
inline void codes_by_cells(int64_t, const float*, Normalize, const Codebook&, uint8_t*) {}
inline int64_t values_by_bytes(int64_t, const uint8_t*, const float*, float, float, float*) { return 0; }
inline void codes_by_lookup(int64_t, const float*, Normalize, const Cells&, uint8_t*) {}
inline int64_t values_by_lookup(int64_t, const uint8_t*, const float*, float, float, float*) { return 0; }
#endif

}  // namespace gradus::cpu
