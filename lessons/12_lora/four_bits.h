// (b) Weights in 4 bits: bytes, and what it costs to make them numbers within a product.
#pragma once
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

struct FourBits {
  std::string name;
  Shape shape;
  int64_t bytes, bytes_bf16, scratch;  // scratch: what a product needs beside its result
  double seconds, seconds_bf16;        // forward and dx; 0: not measured
};
// Of GPT-2's linear layers, for B T = 1024, beside products whose weights are numbers in bf16. On the current
// context's device.
std::vector<FourBits> measure_four_bits();
void four_bits_table(const std::vector<FourBits>& layers, Report& report);

}  // namespace gradus
