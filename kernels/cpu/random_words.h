// Dropout's random words, many at a time.
#pragma once
#include "kernels/kernels.h"
#include "kernels/philox.h"

namespace gradus::cpu {

constexpr int64_t kBlocks = 64;  // of four elements, drawn together

// The random words of `count` blocks of one sample. The loop is over blocks, so that vectors of them go
// through the ten rounds side by side.
[[gnu::flatten, gnu::noinline]] inline void draw(RandomKey key, int64_t step, int64_t sample, int64_t block,
                                                 int64_t count, uint32_t* words) {
#pragma omp simd
  for (int64_t b = 0; b < count; ++b) {
    const Philox4 four = dropout_words(key.seed, step, key.ordinal, sample, block + b);
    for (int i = 0; i < 4; ++i) words[4 * b + i] = four[i];
  }
}

}  // namespace gradus::cpu
