// Random numbers on the host, counter-based: draw i of (seed, stream) is a pure function of the three, so
// streams can be drawn in any order, on any device, and a generator's whole state is three integers:
// Rng(r.seed(), r.stream(), r.counter()) continues where r is.
#pragma once
#include <cmath>
#include <numbers>

#include "kernels/check.h"
#include "kernels/philox.h"

namespace gradus {

class Rng {
 public:
  // Streams of one seed are independent of each other, and below 2^36 also of dropout, which draws from the
  // same seed (dropout_words in kernels/philox.h uses step * 2^36 + sample as its stream, from step 1 on).
  Rng(uint64_t seed, uint64_t stream, uint64_t counter = 0)
      : seed_(seed), stream_(stream), counter_(counter) {}

  uint64_t bits64() {
    const Philox4 words = next();
    return (uint64_t(words[0]) << 32) | words[1];
  }
  double uniform() { return double(bits64() >> 11) * 0x1p-53; }  // in [0, 1)
  // Standard normal (Box & Muller 1958): one value of the pair, so that every draw is one step of the
  // counter.
  double normal() {
    const Philox4 words = next();
    const uint64_t bits53 = (uint64_t(words[0]) << 21) | (words[1] >> 11);
    const double u = (double(bits53) + 0.5) * 0x1p-53;  // never 0: the largest normal is 8.7
    const double angle = 2 * std::numbers::pi * double(words[2]) * 0x1p-32;
    return std::sqrt(-2 * std::log(u)) * std::cos(angle);
  }
  // Uniform in [0, n), without bias: the 2^64 mod n smallest draws, which would favour some values, are
  // rejected, so this may take more than one step of the counter.
  uint64_t below(uint64_t n) {
    check(n > 0, "rng: below(n) needs n of at least 1");
    const uint64_t rejected = (0 - n) % n;  // 2^64 mod n
    for (;;)
      if (const uint64_t x = bits64(); x >= rejected) return x % n;
  }

  uint64_t seed() const { return seed_; }
  uint64_t stream() const { return stream_; }
  uint64_t counter() const { return counter_; }

 private:
  Philox4 next() { return philox(seed_, counter_++, stream_); }

  uint64_t seed_, stream_, counter_;
};

}  // namespace gradus
