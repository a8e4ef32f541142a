// What makes the loop of lesson 13 slower than it needs to be.
#pragma once
#include <vector>

#include "src/train/text.h"

namespace gradus {

struct Plants {
  bool reloads_text = true;       // the text is made anew for every batch
  bool watches_gradients = true;  // all gradients are copied to the host, which looks for the largest element
  bool unfused_gelu = true;       // nine element-wise kernels where one does
  bool operator==(const Plants&) const = default;
};

// As read_batch, of a text that is loaded for this batch.
void load_and_read(int64_t text_bytes, uint64_t seed, int64_t step, Tensor& inputs, Tensor& targets);
// `host` is memory for the copies.
double largest_gradient(const Parameters& parameters, std::vector<float>& host);
// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), op by op: what gelu() does in one kernel.
Tensor unfused_gelu(const Tensor& x);

}  // namespace gradus
