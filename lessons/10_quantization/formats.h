// The formats of lesson 10, what each does to some numbers, and what it costs.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "src/quant/quantized.h"

namespace gradus {

// The names of the formats, in the order of the tables.
const std::vector<std::string>& format_names();
// The format of that name; the codebook of `quantile` is made for x, which the others do not look at.
QuantFormat format_of(const std::string& name, const std::vector<float>& x = {});

std::vector<float> by_largest(std::vector<float> x);  // divided by its largest magnitude

// The codes one by one, those of 4 bits out of their bytes.
std::vector<int> codes_of(const Quantized& q);

// Bits that a number takes: its code, and its share of the 32 bits of each constant of a block. `constants`:
// how many of them each block has; `block`: its elements.
double bits_a_number(int bits, int64_t block, int constants);
// The same of n numbers in a format, as bytes, if they make up whole blocks.
int64_t predicted_bytes(const QuantFormat& format, int64_t n);

// The largest difference between NF4's published values and those made as quantiles.
double nf4_difference(const std::vector<float>& made = normal_float(0.9677083));

struct Damage {
  double error;       // mean |x - x'| / mean |x|
  double codes_used;  // of those that there are
  int64_t bytes;
};
Damage damage(const QuantFormat& format, const std::vector<float>& x);

// n numbers, normally distributed.
std::vector<float> normal_numbers(int64_t n, uint64_t seed);

// The page's small example.
void quantization_by_hand(std::ostream& out);

}  // namespace gradus
