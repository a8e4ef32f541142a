// The formats of lesson 10, the quantization error of each, and its bytes.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "src/quant/quantized.h"

namespace gradus {

// The names of the formats, in the order of the tables.
const std::vector<std::string>& format_names();
// The format of that name. Only `quantile` reads x, because its codebook is computed from the data.
QuantFormat format_of(const std::string& name, const std::vector<float>& x = {});

std::vector<float> divided_by_absmax(std::vector<float> x);

// Absmax quantization of one block in plain loops. The kernels do the same for all blocks of a tensor.
struct CodedBlock {
  float scale = 0;             // the largest magnitude
  std::vector<uint8_t> codes;  // of each element: the code whose value is nearest to element / scale
};
CodedBlock quantize_block(const Codebook& codebook, const std::vector<float>& x);
// The error of x in an absmax format with blocks, quantized by quantize_block: mean |x - x'| / mean |x|.
double plain_error(const QuantFormat& format, const std::vector<float>& x);

// The codes one by one; two codes of 4 bits are unpacked from each byte.
std::vector<int> codes_of(const Quantized& q);
// The share of the elements of x that each code has, by code.
std::vector<double> code_shares(const QuantFormat& format, const std::vector<float>& x);

// Bits per number: its code, and its share of the block's constants, which have 32 bits each. `constants`:
// how many of them a block has; `block`: its elements.
double bits_per_number(int bits, int64_t block, int constants);
// The bytes of n numbers in a format, if the numbers fill whole blocks.
int64_t predicted_bytes(const QuantFormat& format, int64_t n);

// The largest difference between the published values of NF4 and computed ones.
double nf4_difference(const std::vector<float>& computed = normal_float(0.9677083));

// What is measured of a format on some numbers.
struct Measured {
  double error;       // mean |x - x'| / mean |x|
  double codes_used;  // share of the codes that at least one number has
  int64_t bytes;
};
Measured measure(const QuantFormat& format, const std::vector<float>& x);

// n numbers from the standard normal distribution.
std::vector<float> normal_numbers(int64_t n, uint64_t seed);

// The small example of the page.
void quantization_by_hand(std::ostream& out);

}  // namespace gradus
