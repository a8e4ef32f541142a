// Philox 4x32-10: a counter-based random generator (Salmon et al. 2011, "Parallel random numbers: as easy as
// 1, 2, 3"). The same (key, counter) gives the same four words on every device, thread and run; nothing has
// to be stored.
#pragma once
#include <array>
#include <cstdint>

namespace gradus {

using Philox4 = std::array<uint32_t, 4>;

constexpr Philox4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  Philox4 c{uint32_t(counter_low), uint32_t(counter_low >> 32), uint32_t(counter_high),
            uint32_t(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53) * c[0], p1 = uint64_t(0xCD9E8D57) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// The random bits of dropout, the same for any division of the batch: element e of a sample uses word e % 4
// of block e / 4, and is kept if uniform01(word) >= p. The seed is the key; the other arguments share the
// 128-bit counter. They cannot collide while block < 2^40, ordinal < 2^24, sample < 2^36 and step < 2^28:
// 4 x 10^12 elements per sample, 16 million dropout calls per forward, 68 billion samples, 268 million steps.
constexpr Philox4 dropout_words(uint64_t seed, int64_t step, uint32_t ordinal, int64_t sample,
                                int64_t block) {
  return philox(seed, uint64_t(block) | uint64_t(ordinal) << 40, uint64_t(sample) | uint64_t(step) << 36);
}

// Uniform in [0, 1) with 24 bits, so that it is exact in fp32.
constexpr float uniform01(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

}  // namespace gradus
