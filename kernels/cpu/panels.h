// Panels: the copies of A and B that multiply_tile reads, made from matrices of any layout and dtype.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels/cpu/gemm_tile.h"

namespace gradus::cpu {

constexpr int64_t ceil_div(int64_t n, int64_t width) { return (n + width - 1) / width; }
constexpr int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

// The number of words that `numbers` numbers of K take in a panel.
template <class W>
constexpr int64_t words_of(int64_t numbers) {
  return round_up(numbers, Word<W>::kNumbers * Tile<W>::kDeep) / Word<W>::kNumbers;
}

// The words of panels whose matrices have the types TA and TB.
template <class TA, class TB>
using WordOf = std::conditional_t<kHasPairs && std::is_same_v<TA, bf16> && std::is_same_v<TB, bf16>, Bf16Pair,
                                  acc_t<TA>>;

// panel[k * width + i] = word k of line i, for 4 words of 4 lines: a transpose in registers. Words have 32
// bits; lines are `line` bytes apart.
inline void transpose_4x4(const char* x, int64_t line, int width, float* panel) {
  typedef float Quad __attribute__((vector_size(16), aligned(2), may_alias));
  const auto row = [&](int64_t i) { return *reinterpret_cast<const Quad*>(x + i * line); };
  const Quad r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  const Quad low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5),
             high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const Quad low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5),
             high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  const auto put = [&](int64_t k, Quad q) { *reinterpret_cast<Quad*>(panel + k * width) = q; };
  put(0, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
  put(1, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
  put(2, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
  put(3, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
}

// The word that begins with *x; the numbers of a line are `step` apart.
template <class W, class T>
W word(const T* x, int64_t step) {
  if constexpr (Word<W>::kNumbers == 2)
    return {x[0], x[step]};
  else
    return W(*x);
}

// Packs `words` words of each of `count` (<= width) lines of a matrix into a panel of words: panel[k * width
// + i] is word k of line i; missing lines are zeros. Number k of line i is at x[i * line + k * step].
// `following` lines come after these, and will be packed next.
template <class W, class T>
void pack_panel(int64_t words, int64_t count, int width, const T* x, int64_t line, int64_t step,
                int64_t following, W* panel) {
  constexpr int64_t kNumbers = Word<W>::kNumbers;
  constexpr int64_t kBlock = 16;  // words at a time, so that lines are read in whole cache lines
  for (int64_t k0 = 0; k0 < words; k0 += kBlock) {
    const int64_t k1 = std::min(k0 + kBlock, words);
    if (step == 1)  // each line may be in a different page, which no processor predicts
      for (int64_t i = 0; i < std::min<int64_t>(following, width); ++i)
        __builtin_prefetch(x + (width + i) * line + k0 * kNumbers);
    int64_t i = 0;
    if constexpr (sizeof(T) * kNumbers == 4 && sizeof(W) == 4)  // a word has the same bytes in x and panel
      if (step == 1 && k1 - k0 == kBlock)
        for (; i + 4 <= count; i += 4)
          for (int64_t k = k0; k < k1; k += 4)
            transpose_4x4(reinterpret_cast<const char*>(x + i * line + k * kNumbers), line * sizeof(T), width,
                          reinterpret_cast<float*>(panel + k * width + i));
    for (; i < count; ++i)
      for (int64_t k = k0; k < k1; ++k)
        panel[k * width + i] = word<W>(x + i * line + k * kNumbers * step, step);
    for (; i < width; ++i)
      for (int64_t k = k0; k < k1; ++k) panel[k * width + i] = W();
  }
}

// Packs K numbers of each of `count` lines into panels of kWidth lines, which lie kWidth * words words apart.
// Missing lines, and missing numbers of the last word, are zeros.
template <int kWidth, class W, class T>
void pack_panels(int64_t K, int64_t words, int64_t count, const T* x, int64_t line, int64_t step, W* panels) {
  constexpr int64_t kNumbers = Word<W>::kNumbers, kAhead = 16;
  const int64_t complete = K / kNumbers;  // words
  const int64_t whole = line == 1 ? count / kWidth * kWidth : 0;
  // Lines whose numbers are adjacent are copied together, but only a few panels: at the same word, panels
  // often share a set of the L1 cache.
  constexpr int64_t kTogether = 8 * kWidth;
  for (int64_t i0 = 0; i0 < whole; i0 += kTogether)
    for (int64_t k = 0; k < complete; ++k) {
      const T* const from = x + k * kNumbers * step;
      const int64_t i1 = std::min(i0 + kTogether, whole);
      for (int64_t i = i0; i < i1; i += 64 / int64_t(sizeof(T)))
        __builtin_prefetch(from + kAhead * kNumbers * step + i);
      for (int64_t i = i0; i < i1; i += kWidth) {
        W* const to = panels + i * words + k * kWidth;
#pragma omp simd
        for (int l = 0; l < kWidth; ++l) to[l] = word<W>(from + i + l, step);
      }
    }
  for (int64_t i = whole; i < count; i += kWidth)
    pack_panel(complete, std::min<int64_t>(kWidth, count - i), kWidth, x + i * line, line, step,
               count - i - kWidth, panels + i * words);
  if constexpr (kNumbers == 2)
    if (K % 2 == 1)
      for (int64_t i = 0; i < round_up(count, kWidth); ++i)
        panels[i / kWidth * kWidth * words + complete * kWidth + i % kWidth] = {
            i < count ? x[i * line + (K - 1) * step] : T(0), T(0)};
}

// Also for AMX: in a panel of B, word k of line i is at panel[k * width + i], as always; in a panel of A, at
// panel[(k - k % kDeep) * width + i * kDeep + k % kDeep]. Words from the end of K up to a multiple of kDeep
// are zeros.
template <class W, class T>
void pack_b(int64_t K, int64_t words, int64_t count, const T* x, int64_t line, int64_t step, W* panels) {
  constexpr int kWidth = Tile<W>::kCols;
  pack_panels<kWidth>(K, words, count, x, line, step, panels);
  const int64_t packed = (K + Word<W>::kNumbers - 1) / Word<W>::kNumbers;
  for (int64_t i = 0; packed < words && i < count; i += kWidth)
    std::fill(panels + i * words + packed * kWidth, panels + (i + kWidth) * words, W());
}
template <class W, class T>
void pack_a(int64_t K, int64_t words, int64_t count, const T* x, int64_t line, int64_t step, W* panels) {
  constexpr int kWidth = Tile<W>::kRows, kDeep = Tile<W>::kDeep, kNumbers = kDeep * Word<W>::kNumbers;
  if constexpr (kDeep == 1) return pack_panels<kWidth>(K, words, count, x, line, step, panels);
  for (int64_t i0 = 0; i0 < count; i0 += kWidth)
    for (int64_t k0 = 0; k0 < words; k0 += kDeep, panels += kDeep * kWidth) {
      const T* const from = x + i0 * line + k0 * Word<W>::kNumbers * step;
      const int64_t lines = std::min<int64_t>(kWidth, count - i0),
                    numbers = std::min<int64_t>(kNumbers, K - k0 * Word<W>::kNumbers);
      if (step == 1 && numbers == kNumbers && lines == kWidth) {  // a line's words have the panel's order
        for (int64_t i = 0; i < kWidth; ++i)
          std::memcpy(static_cast<void*>(panels + i * kDeep), from + i * line, kDeep * sizeof(W));
        continue;
      }
      W part[kDeep * kWidth] = {};
      pack_panels<kWidth>(numbers, kDeep, lines, from, line, step, part);
      for (int k = 0; k < kDeep; k += 4)
        for (int i = 0; i < kWidth; i += 4)
          transpose_4x4(reinterpret_cast<const char*>(part + k * kWidth + i), kWidth * sizeof(W), kDeep,
                        reinterpret_cast<float*>(panels + i * kDeep + k));
    }
}

}  // namespace gradus::cpu
