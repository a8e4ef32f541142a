// attention_plain and attention_flash with the same q, k and v: what they save, how long they take, what
// comes out.
#pragma once
#include "src/autograd/tape.h"
#include "src/nn/transformer_config.h"
#include "src/ops/ops.h"
#include "src/train/lesson.h"

namespace gradus {

using AttentionOp = decltype(&attention_plain);

struct AttentionSize {
  int64_t B, T;
  Heads heads;
  int64_t D;
  DType dtype = DType::F32;
  Shape qkv() const { return {B, T, (heads.q + 2 * heads.kv) * D}; }
  Shape y() const { return {B, T, heads.q * D}; }
};
// Bytes that the tape keeps for backward: qkv and B H T T probabilities, or qkv, y and B H T log-sum-exps.
int64_t saved_by_plain(const AttentionSize&);
int64_t saved_by_flash(const AttentionSize&);

// Random q, k, v and dy on the current device, the same numbers on every one. qkv wants a gradient.
struct AttentionInput {
  Tensor qkv, dy;
  Leaf leaf;
  AttentionInput(const AttentionSize&, uint64_t seed);
};

struct AttentionRun {
  int64_t saved = 0, peak = 0;  // bytes: on the tape; the most that is allocated, but for the workspace
  double seconds = NAN;         // the median; NaN on meta
  std::vector<double> y, dqkv;  // none on meta
};
// Causal attention, forward and backward, `repeats` times and once before to warm up.
AttentionRun run_attention(const Lesson&, const std::string& device, AttentionOp, const AttentionSize&,
                           int repeats);

// The largest |a - b|; NaN if some a or b is.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);
std::string time_text(double seconds);  // "-" if it is not a number

// Both for each size; plain attention of more than `longest_plain` tokens on meta, which has its bytes.
struct Compared {
  AttentionSize size;
  AttentionRun plain, flash;
};
std::vector<Compared> compare(const Lesson&, const std::vector<AttentionSize>&, int64_t longest_plain);
void report_compared(const std::vector<Compared>&, const std::string& picture, Report&);

// Largest differences of both from attention_plain in fp64, with the same numbers.
struct AttentionErrors {
  DType dtype;
  double plain[2], flash[2],
      largest[2];  // of y, of the gradients of q, k and v; largest: their largest number
};
std::vector<AttentionErrors> measure_errors(const Lesson&, const AttentionSize&);
void report_errors(const AttentionSize&, const std::vector<AttentionErrors>&, Report&);

// What training with one and with the other attention has given.
struct Trained {
  std::vector<double> losses;
  int64_t activations = 0;  // bytes, at the peak
};
void check_training(const TransformerConfig&, int64_t batch, const Trained& plain, const Trained& flash,
                    Report&);

}  // namespace gradus
