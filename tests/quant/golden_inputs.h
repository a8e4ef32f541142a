// Computes the inputs of golden files: numbers that are about normal.
#pragma once
#include <cstdint>
#include <vector>

namespace gradus {

// As in make_quantization.py: element i depends only on i.
inline std::vector<float> golden_inputs(int64_t n) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (uint32_t k = 1; k <= 4; ++k) sum += double((uint32_t(4 * i) + k) * 2654435761u >> 16);
    x.push_back(float((sum - 131070.0) / 37837.0));
  }
  return x;
}

}  // namespace gradus
