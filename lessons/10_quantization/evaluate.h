// A trained model with its matrices quantized: what is left of it, and what it takes.
#pragma once
#include <string>
#include <vector>

#include "src/quant/quantized.h"
#include "src/train/text.h"

namespace gradus {

// The elements of all matrices of a model (what weight decay applies to), one after the other.
std::vector<float> matrices_of(const Transformer& model);

struct Quality {
  std::string format;  // "fp32" for none
  int64_t bytes;       // of all weights: quantized matrices, and the rest as it is
  double loss;         // on held-out text
};
// With none of the formats, and then with each of them; the weights are as before when it returns.
std::vector<Quality> evaluate_formats(Transformer& model, const Loader& loader, int64_t batch);

// Loss against bytes.
void draw_qualities(const std::vector<Quality>& all, const std::string& path);

}  // namespace gradus
