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
// codes in this order, the numbers come out in the order of the elements.
constexpr std::array<uint8_t, 64> order_to_interleave() {
  std::array<uint8_t, 64> order{};
  for (int i = 0; i < 64; ++i) order[size_t(i)] = uint8_t(i % 16 / 4 * 16 + i / 16 * 4 + i % 4);
  return order;
}

struct Table {  // of 256 numbers, by bytes: first all lowest bytes, and so on
  explicit Table(const float* number) : number(number) {
    for (int k = 0; k < 4; ++k)
      for (int c = 0; c < 256; ++c) bytes[k][c] = uint8_t(std::bit_cast<uint32_t>(number[c]) >> 8 * k);
  }
  // y = offset + scale number[code], of n codes.
  [[gnu::noinline]] void look_up(int64_t n, const uint8_t* codes, float scale, float offset, float* y) const {
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
    for (; i < n; ++i) y[i] = offset + scale * number[codes[i]];
  }
  const float* number;
  alignas(64) uint8_t bytes[4][256];
};
#else
inline int64_t look_up_packed(int64_t, const uint8_t*, const float*, float, float, float*) { return 0; }
struct Table {
  explicit Table(const float* number) : number(number) {}
  void look_up(int64_t n, const uint8_t* codes, float scale, float offset, float* y) const {
    for (int64_t i = 0; i < n; ++i) y[i] = offset + scale * number[codes[i]];
  }
  const float* number;
};
#endif

}  // namespace gradus::cpu
