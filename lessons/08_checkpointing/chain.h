// A chain without parameters, y = f(f(...f(x))), on the device meta: the textbook's picture of checkpointing.
#pragma once
#include <cstdint>
#include <ostream>
#include <vector>

#include "src/train/report.h"

namespace gradus {

// n steps, cut into segments of these lengths, each of which keeps its input alone; {}: all is kept. With
// `from_the_start` only x is kept, and every step's input is made from it.
struct Chain {
  int64_t n;
  std::vector<int64_t> segments;
  bool from_the_start = false;
};

// How many values are alive at most in the backward pass, counted at the allocator. A value is alive from its
// making until nothing will read it: what is kept, what runs again, and the gradient that a step is given.
// (Not the one that it is about to write: that takes the place of the one it read.)
int64_t live_values(const Chain& chain);
// Bytes of activations at the most; a value has `value_bytes`, and x is one of them.
int64_t activation_bytes(const Chain& chain, int64_t value_bytes);
// ceil(n / k) segments of k steps, of which the last may have fewer.
std::vector<int64_t> segments_of(int64_t n, int64_t k);

// (a) Those counts, beside the textbook's.
struct ChainCounts {
  int64_t (*values)(const Chain& chain) = live_values;
  int64_t (*bytes)(const Chain& chain, int64_t value_bytes) = activation_bytes;
};
void chain_table(Report& report, const ChainCounts& count = {});

// --print=example: what is alive in each step of the backward pass, drawn.
void chain_by_hand(std::ostream& out);

}  // namespace gradus
