// Dropout's random bits, for many elements at a time.
#pragma once
#include <algorithm>

#include "kernels/kernels.h"
#include "kernels/philox.h"

namespace gradus::cpu {

constexpr int64_t kBlocks = 64;  // blocks of four elements that are drawn together

// Draws the words of `count` blocks of one sample. The loop is over blocks, so that compilers vectorize it:
// several blocks go through the ten rounds together.
[[gnu::flatten, gnu::noinline]] inline void draw(RandomKey key, int64_t step, int64_t sample, int64_t block,
                                                 int64_t count, uint32_t* words) {
#pragma omp simd
  for (int64_t b = 0; b < count; ++b) {
    const Philox4 four = dropout_words(key.seed, step, key.ordinal, sample, block + b);
    for (int i = 0; i < 4; ++i) words[4 * b + i] = four[i];
  }
}

// Calls f(i, count, words) with the words of elements [first + i, first + i + count) of a sample, until all n
// elements are done.
template <class F>
void each_word(RandomKey key, int64_t step, int64_t sample, int64_t first, int64_t n, F f) {
  first += key.first_element;
  uint32_t words[4 * kBlocks];
  for (int64_t i = 0, count; i < n; i += count) {
    const int64_t block = (first + i) / 4, skip = (first + i) % 4;
    count = std::min(n - i, 4 * kBlocks - skip);
    draw(key, step, sample, block, (skip + count + 3) / 4, words);
    f(i, count, words + skip);
  }
}

}  // namespace gradus::cpu
