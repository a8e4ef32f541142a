// The order in which samples are read, epoch after epoch. A position counts samples from the beginning of the
// first epoch: with a batch of B, step s reads positions s B to (s + 1) B - 1. The sample at a position is a
// function of (seed, position) only. So it does not depend on the process or thread that reads it, or on
// restarts, and to go on later only a position has to be saved.
#pragma once
#include "kernels/check.h"
#include "kernels/philox.h"

namespace gradus {

class SampleOrder {
 public:
  // 1 <= samples < 2^62
  SampleOrder(int64_t samples, uint64_t seed) : samples_(samples), seed_(seed) {
    check(samples >= 1 && samples < int64_t(1) << 62, "sample order: ", samples,
          " samples; there must be 1 to 2^62 - 1. Is the text shorter than one sample?");
    while (int64_t(1) << (2 * half_bits_) < samples) ++half_bits_;
  }

  int64_t samples() const { return samples_; }
  int64_t epoch_of(int64_t position) const { return position / samples_; }

  // Each sample is at one position of each epoch.
  int64_t at(int64_t position) const {
    check(position >= 0, "sample order: position ", position, "; the first is 0");
    uint64_t x = uint64_t(position % samples_);
    // permuted() may leave [0, samples); applied repeatedly, it returns to this range, and no two x return to
    // the same place (cycle walking: Black and Rogaway 2002, "Ciphers with arbitrary finite domains", sec.
    // 3).
    do x = permuted(x, uint64_t(epoch_of(position)));
    while (x >= uint64_t(samples_));
    return int64_t(x);
  }

 private:
  // A permutation of [0, 4^half_bits), a different one for each epoch: four rounds of a Feistel network (Luby
  // and Rackoff 1988). The same random word inverts a round, whatever the word is, so no two x have the same
  // image.
  uint64_t permuted(uint64_t x, uint64_t epoch) const {
    constexpr uint64_t kStream = 0x54AF1E;
    const uint64_t mask = (uint64_t(1) << half_bits_) - 1;
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t word = philox(seed_, right, kStream + 4 * epoch + round)[0];
      const uint64_t new_right = left ^ (word & mask);
      left = right, right = new_right;
    }
    return left << half_bits_ | right;
  }

  int64_t samples_;
  uint64_t seed_;
  int half_bits_ = 0;
};

}  // namespace gradus
