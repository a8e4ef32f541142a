// Head and loss of a language model: with all logits at once, or in chunks of rows.
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
  int64_t at_a_time = 0;  // rows per chunk; 0: all rows, cross_entropy(linear(x))
  int64_t peak = 0;       // bytes, without workspace and rounding
  double seconds = NAN;   // forward and backward, median; NaN on meta
  std::vector<double> loss, gradients;
};
// Calls zero_grad() before the forward pass, so that the new gradient of the weight reuses the memory of the
// old one.
std::vector<HeadRun> run_heads(const Lesson&, const HeadSize&, const std::vector<int64_t>& rows_at_a_time);
void report_heads(const std::vector<HeadRun>&, const HeadSize&, Report&);

// Allocated bytes at the peak of a training step, without rounding, measured on meta.
int64_t peak_of_step(const Lesson&, const TransformerConfig&, int64_t batch);
// Checks the two peaks: with all logits, and in chunks of `rows` rows.
void check_peaks(int64_t all, int64_t chunked, const HeadSize&, int64_t rows, Report&);
void report_model_peaks(const Lesson&, const TransformerConfig&, int64_t batch, int64_t rows, Report&);

// The norm of a - b, relative to the norm of b.
double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b);
// Normal numbers times `size`; on meta without data.
Tensor random_tensor(const Shape& shape, double size, uint64_t seed, uint64_t stream = 0);

}  // namespace gradus
