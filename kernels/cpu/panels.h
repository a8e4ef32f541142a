// Panels: the copies of A and B that multiply_tile reads, made from matrices of any layout and dtype.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels/cpu/gemm_tile.h"

namespace gradus::cpu {

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

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

// Packs K numbers of each of `count` (<= width) lines of a matrix into a panel of words: panel[k * width + i]
// is word k of line i; missing lines, and missing numbers of the last word, are zeros. Number k of line i is
// at x[i * line + k * step].
template <class W, class T>
void pack_panel(int64_t K, int64_t count, int width, const T* x, int64_t line, int64_t step, W* panel) {
  constexpr int64_t kNumbers = Word<W>::kNumbers;
  const int64_t words = K / kNumbers;
  const auto word_of = [&](int64_t i, int64_t k) {
    return word<W>(x + i * line + k * kNumbers * step, step);
  };
  if constexpr (kNumbers == 2)
    if (K % 2 == 1)
      for (int64_t i = 0; i < width; ++i)
        panel[words * width + i] = {i < count ? x[i * line + (K - 1) * step] : T(0), T(0)};
  // In a large matrix each step, or each line, is in a different page, which no processor predicts; so the
  // loops prefetch the numbers that they pack next.
  if (line == 1 && count == width) {
    constexpr int64_t kAhead = 16;
    for (int64_t k = 0; k < words; ++k) {
      for (int i = 0; i < width; i += 64 / int(sizeof(T)))
        __builtin_prefetch(x + i + (k + kAhead) * kNumbers * step);
      for (int i = 0; i < width; ++i) panel[k * width + i] = word_of(i, k);
    }
    return;
  }
  constexpr int64_t kBlock = 16;  // words at a time, so that lines are read in whole cache lines
  for (int64_t k0 = 0; k0 < words; k0 += kBlock) {
    const int64_t k1 = std::min(k0 + kBlock, words);
    if (step == 1)
      for (int64_t i = 0; i < width; ++i) __builtin_prefetch(x + (width + i) * line + k0 * kNumbers);
    int64_t i = 0;
    if constexpr (sizeof(T) * kNumbers == 4 && sizeof(W) == 4)  // a word has the same bytes in x and panel
      if (step == 1 && k1 - k0 == kBlock)
        for (; i + 4 <= count; i += 4)
          for (int64_t k = k0; k < k1; k += 4)
            transpose_4x4(reinterpret_cast<const char*>(x + i * line + k * kNumbers), line * sizeof(T), width,
                          reinterpret_cast<float*>(panel + k * width + i));
    for (; i < count; ++i)
      for (int64_t k = k0; k < k1; ++k) panel[k * width + i] = word_of(i, k);
    for (; i < width; ++i)
      for (int64_t k = k0; k < k1; ++k) panel[k * width + i] = W();
  }
}

// Also for AMX: in a panel of B, word k of line i is at panel[k * width + i], as always; in a panel of A, at
// panel[(k - k % kDeep) * width + i * kDeep + k % kDeep]. Words from the end of K up to a multiple of kDeep
// are zeros.
template <class W, class T>
void pack_b(int64_t K, int64_t words, int64_t count, const T* x, int64_t line, int64_t step, W* panel) {
  constexpr int kWidth = Tile<W>::kCols;
  pack_panel(K, count, kWidth, x, line, step, panel);
  const int64_t packed = (K + Word<W>::kNumbers - 1) / Word<W>::kNumbers;
  std::fill(panel + packed * kWidth, panel + words * kWidth, W());
}
template <class W, class T>
void pack_a(int64_t K, int64_t words, int64_t count, const T* x, int64_t line, int64_t step, W* panel) {
  constexpr int kWidth = Tile<W>::kRows, kDeep = Tile<W>::kDeep, kNumbers = kDeep * Word<W>::kNumbers;
  if constexpr (kDeep == 1) {
    pack_panel(K, count, kWidth, x, line, step, panel);
  } else {
    for (; words > 0; words -= kDeep, K -= kNumbers, x += kNumbers * step, panel += kDeep * kWidth) {
      if (step == 1 && K >= kNumbers && count == kWidth) {  // a line's words have the panel's order
        for (int64_t i = 0; i < kWidth; ++i)
          std::memcpy(static_cast<void*>(panel + i * kDeep), x + i * line, kDeep * sizeof(W));
        continue;
      }
      W part[kDeep * kWidth] = {};
      pack_panel(std::min<int64_t>(K, kNumbers), count, kWidth, x, line, step, part);
      for (int k = 0; k < kDeep; k += 4)
        for (int i = 0; i < kWidth; i += 4)
          transpose_4x4(reinterpret_cast<const char*>(part + k * kWidth + i), kWidth * sizeof(W), kDeep,
                        reinterpret_cast<float*>(panel + i * kDeep + k));
    }
  }
}

}  // namespace gradus::cpu
