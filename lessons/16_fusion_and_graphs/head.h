// The head and the loss of a language model: all logits at once, or those of some rows at a time.
#pragma once
#include <string>
#include <vector>

#include "src/nn/transformer.h"
#include "src/train/lesson.h"

namespace gradus {

struct HeadSize {
  int64_t rows, channels, vocab;
  int64_t logit_bytes(int64_t of_rows) const { return of_rows * vocab * size_of(DType::F32); }
};
struct HeadRun {
  int64_t at_a_time = 0;  // rows; 0: cross_entropy(linear(x)), all of them
  int64_t peak = 0;       // bytes, without the workspace and rounding
  double seconds = NAN;   // forward and backward, the median; NaN on meta
  std::vector<double> loss, gradients;
};
// With zero_grad() before the forward pass, so that the gradient of the weight is made where it was.
std::vector<HeadRun> run_heads(const Lesson&, const HeadSize&, const std::vector<int64_t>& rows_at_a_time);
void report_heads(const std::vector<HeadRun>&, const HeadSize&, Report&);

// Bytes at the peak of a training step of a model on meta.
int64_t peak_of_step(const Lesson&, const TransformerConfig&, int64_t batch);
void report_model_peaks(const Lesson&, const TransformerConfig&, int64_t batch, int64_t rows, Report&);

// The norm of a - b, as a share of that of b.
double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b);
// Normally distributed numbers times `size`; on meta, none.
Tensor random_tensor(const Shape& shape, double size, uint64_t seed, uint64_t stream = 0);

}  // namespace gradus
