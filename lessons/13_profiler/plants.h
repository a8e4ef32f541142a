// The bottlenecks that are planted in the loop of lesson 13.
#pragma once
#include <vector>

#include "src/train/text.h"

namespace gradus {

struct Plants {
  bool reloads_text = true;       // the text is loaded for every batch
  bool watches_gradients = true;  // all gradients are copied to the host, which finds the largest element
  bool unfused_gelu = true;       // nine element-wise kernels instead of one
  bool operator==(const Plants&) const = default;
};

// Like read_batch, but loads the text first.
void load_and_read(int64_t text_bytes, uint64_t seed, int64_t step, Tensor& inputs, Tensor& targets);
// The largest absolute value of all gradients. `host` is memory for the copies.
double largest_gradient(const Parameters& parameters, std::vector<float>& host);
// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), op by op; gelu() computes it in one kernel.
Tensor unfused_gelu(const Tensor& x);

}  // namespace gradus
