// Random numbers on the host, counter-based: value i of stream (seed, stream) is a pure function of the
// three, so streams can be drawn in any order, on any device, and a generator's whole state is its counter.
#pragma once
#include <cmath>
#include <numbers>

#include "kernels/check.h"
#include "kernels/philox.h"

namespace gradus {

class Rng {
 public:
  Rng(uint64_t seed, uint64_t stream, uint64_t counter = 0)
      : seed_(seed), stream_(stream), counter_(counter) {}

  uint64_t bits64() {
    const Philox4 words = philox(seed_, counter_++, stream_);
    return (uint64_t(words[0]) << 32) | words[1];
  }
  double uniform() { return double(bits64() >> 11) * 0x1p-53; }  // in [0, 1)
  // Standard normal (Box & Muller 1958): one value of the pair, so that value i needs counter i only.
  double normal() {
    const Philox4 words = philox(seed_, counter_++, stream_);
    const double u = (double((uint64_t(words[0]) << 21) ^ (words[1] >> 11)) + 0.5) * 0x1p-53;  // in (0, 1)
    const double angle = 2 * std::numbers::pi * double(words[2]) * 0x1p-32;
    return std::sqrt(-2 * std::log(u)) * std::cos(angle);
  }
  // Uniform in [0, n), without bias: the few largest draws, which would favour small values, are drawn again.
  uint64_t below(uint64_t n) {
    check(n > 0, "rng: a number below 0 cannot be drawn");
    const uint64_t rejected = (0 - n) % n;  // 2^64 mod n
    for (;;)
      if (const uint64_t x = bits64(); x >= rejected) return x % n;
  }
  uint64_t counter() const { return counter_; }

 private:
  uint64_t seed_, stream_, counter_;
};

}  // namespace gradus
