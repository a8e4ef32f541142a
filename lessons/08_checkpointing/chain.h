// A chain of steps without parameters, y = f(f(...f(x))), on the device meta: the textbook example of
// checkpointing.
#pragma once
#include <cstdint>
#include <ostream>
#include <vector>

#include "src/train/report.h"

namespace gradus {

// A chain of n steps, cut into segments of these lengths. Each segment saves only its input; {}: every step
// saves its input. With `from_the_start` only x is saved, and each step's input is recomputed from x.
struct Chain {
  int64_t n;
  std::vector<int64_t> segments;
  bool from_the_start = false;
};

// The largest number of values alive at the same time in the backward pass, counted at the allocator. A value
// is alive from the step that computes it until its last reader is done. Counted are saved values, recomputed
// values and the gradient that a step receives. The gradient that a step writes is not counted, because it
// takes the place of the received one.
int64_t live_values(const Chain& chain);
// The peak of activations in bytes, x included, if each value has `value_bytes`.
int64_t activation_bytes(const Chain& chain, int64_t value_bytes);
// ceil(n / k) segments of k steps; the last one may be shorter.
std::vector<int64_t> segments_of(int64_t n, int64_t k);

// Part (a): these counts, compared with the textbook's formulas.
struct ChainCounts {
  int64_t (*values)(const Chain& chain) = live_values;
  int64_t (*bytes)(const Chain& chain, int64_t value_bytes) = activation_bytes;
};
void chain_table(Report& report, const ChainCounts& count = {});

// --print=example: the values alive in each step of the backward pass.
void chain_by_hand(std::ostream& out);

}  // namespace gradus
