// A trained model with quantized matrices: its held-out loss and its bytes.
#pragma once
#include <string>
#include <vector>

#include "src/quant/quantized.h"
#include "src/train/text.h"

namespace gradus {

// The elements of all matrices of a model, one after the other. Matrices are the parameters with weight
// decay.
std::vector<float> matrices_of(const Transformer& model);

struct Quality {
  std::string format;  // "fp32": not quantized
  int64_t bytes;       // of all weights: quantized matrices, and biases and norms in fp32
  double loss;         // on held-out text
};
// First in fp32, then with each format. Restores the weights.
std::vector<Quality> evaluate_formats(Transformer& model, const Loader& loader, int64_t batch);

// Draws the loss against the bytes.
void draw_qualities(const std::vector<Quality>& all, const std::string& path);

}  // namespace gradus
