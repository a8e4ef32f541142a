// (b) Weights in NF4: their bytes, and the time to dequantize them inside each product.
#pragma once
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

// The bytes of n weights in NF4 with double quantization: a code of 4 bits per weight, a code of 8 bits per
// kWeightBlock weights, a scale of 32 bits per kSpan weights.
int64_t nf4_bytes(int64_t n);

struct FourBits {
  std::string name;
  Shape shape;
  int64_t bytes, bytes_bf16, temporaries;  // temporaries: at most this much at a time, without the result
  double seconds, seconds_bf16;            // forward pass and gradient of x; 0: not measured
};
// The linear layers of GPT-2 for B T = 1,024 tokens, compared with products of weights in bf16, on the
// current context's device.
std::vector<FourBits> measure_four_bits();
void four_bits_table(const std::vector<FourBits>& layers, Report& report);

}  // namespace gradus
