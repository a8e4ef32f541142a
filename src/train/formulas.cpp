#include "src/train/formulas.h"

namespace gradus {

int64_t bytes_per_parameter(const Precision& p, int states) {
  // BEGIN SOLUTION 04.1
  const int64_t master = p.master ? size_of(DType::F32) : 0;
  return size_of(p.value) + master + size_of(p.gradient) + states * size_of(p.state);
  // STUB: todo("04.1", "bytes of weight, master copy, gradient and states", p.value, states);
  // END SOLUTION 04.1
}

int64_t saved_by_a_layer(const TransformerConfig& config, int64_t B, int64_t T) {
  const int64_t C = config.channels, H = config.heads, number = size_of(config.precision.value);
  // BEGIN SOLUTION 04.3
  const int64_t norms = 2 * (C * number + 2 * 4);  // the input of each, and its mean and deviation
  const int64_t attention = (C + 3 * C + H * T + C) * number;  // its input; q, k, v; probabilities; output
  const int64_t mlp = (C + 4 * C + 4 * C) * number;            // its input; the input and the output of gelu
  return B * T * (norms + attention + mlp);
  // STUB: todo("04.3", "bytes of all tensors that a block saves: norms, attention, MLP", B, T, C, H, number);
  // END SOLUTION 04.3
}

}  // namespace gradus
