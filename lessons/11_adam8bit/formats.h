// The formats in which lesson 11 keeps AdamW's states, and what they take.
#pragma once
#include <string>
#include <vector>

#include "src/quant/quantized.h"

namespace gradus {

struct StateFormat {  // m and v in blocks of one size
  std::string name;
  QuantFormat m, v;
};
// Linear or dynamic, a scale for the whole tensor or for a block of 256: the paper's ablation (its table 3).
// m has a sign, v has none. The last one is what AdamW8bit has: dynamic, blocks, v rounded up.
const std::vector<StateFormat>& state_formats();

// Bytes of AdamW's states of a tensor of n elements, in 8 bits (but for small tensors), if `block` of them
// share a scale; 0: all of the tensor.
int64_t state_bytes(int64_t n, int64_t block);

}  // namespace gradus
