// The formats of AdamW's states in lesson 11, and their bytes.
#pragma once
#include <string>
#include <vector>

#include "src/quant/quantized.h"

namespace gradus {

struct StateFormat {  // of m and v, with blocks of the same size
  std::string name;
  QuantFormat m, v;
};
// A linear or dynamic codebook; a scale for the whole tensor or for each block of 256: the ablation of table
// 3 in the paper. m has a sign, v does not. The last format is that of AdamW8bit: dynamic, blocks, v rounded
// up.
const std::vector<StateFormat>& state_formats();

// Bytes of AdamW's two states of a tensor of n elements, if `block` elements share a scale (0: the whole
// tensor). The states of tensors that are too small for AdamW8bit stay in fp32.
int64_t state_bytes(int64_t n, int64_t block);

}  // namespace gradus
