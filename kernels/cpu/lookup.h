// Looks up numbers by codes. With AVX-512 and its byte permutations, one instruction looks up 16 numbers in a
// table of 16 numbers, or 64 bytes in a table of 128 bytes.
#pragma once
#include <array>

#include "kernels/cpu/io.h"
#ifdef __AVX512VBMI__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 warns about its own header (bug 105593)
#include <immintrin.h>
#endif

namespace gradus::cpu {

#ifdef __AVX512VBMI__
// y = offset + scale value[code], of n codes, two per byte; returns how many it has done: a multiple of 32.
inline int64_t look_up_packed(int64_t n, const uint8_t* codes, const float* value, float scale, float offset,
                              float* y) {
  const __m512 table = offset + scale * _mm512_loadu_ps(value);
  const __m512i in_turn = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                upper = _mm512_set1_epi32(8);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512i two =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const __m512 first = _mm512_permutexvar_ps(_mm512_srli_epi32(two, 4), table),
                 second = _mm512_permutexvar_ps(two, table);  // uses only the lowest four bits
    _mm512_storeu_ps(y + i, _mm512_permutex2var_ps(first, in_turn, second));
    _mm512_storeu_ps(y + i + 16, _mm512_permutex2var_ps(first, in_turn + upper, second));
  }
  return i;
}

// Interleaving works within each quarter of two registers; doing it twice joins bytes to numbers. With the
// codes in this order, the numbers come out in the order of the elements. It is its own inverse.
constexpr std::array<uint8_t, 64> order_to_interleave() {
  std::array<uint8_t, 64> order{};
  for (int i = 0; i < 64; ++i) order[size_t(i)] = uint8_t(i % 16 / 4 * 16 + i / 16 * 4 + i % 4);
  return order;
}
constexpr std::array<uint8_t, 64> kOrder = order_to_interleave();

struct Table {  // of 256 numbers, by bytes: first all lowest bytes, and so on
  explicit Table(const float* number) : number(number) {
    for (int k = 0; k < 4; ++k)
      for (int c = 0; c < 256; ++c) bytes[k][c] = uint8_t(std::bit_cast<uint32_t>(number[c]) >> 8 * k);
  }
  // The numbers of 64 codes, which are in the order to interleave; 16 in each element of `found`.
  void look_up(__m512i code, __m512 (&found)[4]) const {
    __m512i byte[4];
    for (int k = 0; k < 4; ++k) {
      const auto half = [&](int first) {
        return _mm512_permutex2var_epi8(_mm512_loadu_si512(bytes[k] + first), code,
                                        _mm512_loadu_si512(bytes[k] + first + 64));
      };
      byte[k] = _mm512_mask_blend_epi8(_mm512_movepi8_mask(code), half(0), half(128));
    }
    const __m512i low[2] = {_mm512_unpacklo_epi8(byte[0], byte[1]), _mm512_unpackhi_epi8(byte[0], byte[1])},
                  high[2] = {_mm512_unpacklo_epi8(byte[2], byte[3]), _mm512_unpackhi_epi8(byte[2], byte[3])};
    for (int q = 0; q < 4; ++q)
      found[q] = _mm512_castsi512_ps(q % 2 ? _mm512_unpackhi_epi16(low[q / 2], high[q / 2])
                                           : _mm512_unpacklo_epi16(low[q / 2], high[q / 2]));
  }
  // y = offset + scale number[code], of n codes.
  [[gnu::noinline]] void look_up(int64_t n, const uint8_t* codes, float scale, float offset, float* y) const {
    const __m512i order = _mm512_loadu_si512(kOrder.data());
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
      __m512 found[4];
      look_up(_mm512_permutexvar_epi8(order, _mm512_loadu_si512(codes + i)), found);
      for (int q = 0; q < 4; ++q) _mm512_storeu_ps(y + i + 16 * q, offset + scale * found[q]);
    }
    for (; i < n; ++i) y[i] = offset + scale * number[codes[i]];
  }
  const float* number;
  alignas(64) uint8_t bytes[4][256];
};

// For magnitudes in [4^i, 4^(i + 1)) 2^-31, the line of the decade (dynamic_place) in which this range
// begins; it ends in the same decade or in the next. The lowest four bits of a float's upper byte are i.
struct LowerLines {
  float slope[16] = {}, start[16] = {};
  constexpr LowerLines() {
    constexpr Decades kDecades;
    float begin = 0x1p-31f;
    for (int i = 0; i < 16; ++i, begin *= 4) {
      int decade = 0;
      for (float end = 1e-6f; decade < 6 && end <= begin; end *= 10) ++decade;
      slope[i] = kDecades.line[decade].slope, start[i] = kDecades.line[decade].start;
    }
  }
};

// Codes of n elements in a dynamic codebook, as those of nearest_code; `boundary` has the codebook's. Returns
// how many it has computed: a multiple of 64, and 0 if `place` is more than a factor.
[[gnu::noinline]] inline int64_t dynamic_codes(int64_t n, const float* x, Normalize place, float first_decade,
                                               const Table& boundary, uint8_t* codes) {
  if (place.offset != 0 || place.up != 1) return 0;
  static constexpr LowerLines kLower;
  const __m512 slopes = first_decade * _mm512_loadu_ps(kLower.slope),
               starts = first_decade * _mm512_loadu_ps(kLower.start) - 0.5f;
  const __m512 least = _mm512_set1_ps(0x1p-31f), most = _mm512_set1_ps(128 * first_decade),
               sign = _mm512_set1_ps(-0.0f);
  const __m512i order = _mm512_loadu_si512(kOrder.data());
  const float zero = first_decade == 1 ? 127 : -1;
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    __m512 t[4], at_boundary[4];
    __m512i start[4];
    for (int q = 0; q < 4; ++q) {
      t[q] = _mm512_loadu_ps(x + i + 16 * q) * place.inverse;
      constexpr int kLargerMagnitude = 0b1011;
      const __m512 magnitude = _mm512_range_ps(t[q], least, kLargerMagnitude);
      const __m512i range = _mm512_srli_epi32(_mm512_castps_si512(magnitude), 24);
      const __m512 first = _mm512_permutexvar_ps(range, starts);
      // dynamic_place(magnitude) first_decade - 1/2, by the line and by the next one: a fifth as steep, from
      // twice as high.
      const __m512 line = _mm512_fmadd_ps(_mm512_permutexvar_ps(range, slopes), magnitude, first),
                   next = _mm512_fmadd_ps(line, _mm512_set1_ps(0.2f),
                                          _mm512_fmadd_ps(first, _mm512_set1_ps(1.8f), _mm512_set1_ps(0.5f)));
      const __m512 above_zero = _mm512_min_ps(_mm512_min_ps(line, next), most);
      start[q] = _mm512_cvttps_epi32(zero + _mm512_or_ps(above_zero, _mm512_and_ps(sign, t[q])));
    }
    // Within 0 and 255, and in the order to interleave.
    const __m512i code =
        _mm512_packus_epi16(_mm512_packs_epi32(start[0], start[1]), _mm512_packs_epi32(start[2], start[3]));
    boundary.look_up(code, at_boundary);
    const auto is_above = [&](int q) { return _mm512_cmp_ps_mask(t[q], at_boundary[q], _CMP_GT_OQ); };
    const __mmask64 above =
        _mm512_kunpackd(_mm512_kunpackw(is_above(3), is_above(2)), _mm512_kunpackw(is_above(1), is_above(0)));
    const __m512i in_turn = _mm512_permutexvar_epi8(order, code);
    _mm512_storeu_si512(codes + i, _mm512_mask_add_epi8(in_turn, above, in_turn, _mm512_set1_epi8(1)));
  }
  return i;
}
#else
inline int64_t look_up_packed(int64_t, const uint8_t*, const float*, float, float, float*) { return 0; }
struct Table {
  explicit Table(const float* number) : number(number) {}
  void look_up(int64_t n, const uint8_t* codes, float scale, float offset, float* y) const {
    for (int64_t i = 0; i < n; ++i) y[i] = offset + scale * number[codes[i]];
  }
  const float* number;
};
inline int64_t dynamic_codes(int64_t, const float*, Normalize, float, const Table&, uint8_t*) { return 0; }
#endif

}  // namespace gradus::cpu
