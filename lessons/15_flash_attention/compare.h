// attention_plain and attention_flash with the same q, k and v: saved bytes, peak memory, time, errors.
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
// Bytes that the tape saves for backward. Plain: qkv and B H T T attention weights. Flash: qkv, y and B H T
// log-sum-exps.
int64_t saved_by_plain(const AttentionSize&);
int64_t saved_by_flash(const AttentionSize&);

// Random q, k, v and dy on the current device; every device gets the same numbers. qkv requires a gradient.
struct AttentionInput {
  Tensor qkv, dy;
  Leaf leaf;
  AttentionInput(const AttentionSize&, uint64_t seed);
};

struct AttentionRun {
  int64_t saved = 0, peak = 0;  // bytes: saved by the tape; allocated at the peak, without the workspace
  double seconds = NAN;         // median of the repeats; NaN on meta
  std::vector<double> y, dqkv;  // empty on meta
};
// Causal attention, forward and backward: one warm-up, then `repeats` timed runs.
AttentionRun run_attention(const Lesson&, const std::string& device, AttentionOp, const AttentionSize&,
                           int repeats);

// The largest |a - b|; NaN if any a or b is NaN.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);
std::string time_text(double seconds);  // "-" for NaN

// Runs both for each size. With more than `longest_plain` tokens, plain attention runs on meta: its bytes are
// measured, its time is not.
struct Compared {
  AttentionSize size;
  AttentionRun plain, flash;
};
std::vector<Compared> compare(const Lesson&, const std::vector<AttentionSize>&, int64_t longest_plain);
void report_compared(const std::vector<Compared>&, const std::string& picture, Report&);

// Largest differences from attention_plain in fp64 with the same inputs. [0] is for y, [1] for the gradients
// of q, k and v. largest: the largest magnitude in fp64.
struct AttentionErrors {
  DType dtype;
  double plain[2], flash[2], largest[2];
};
std::vector<AttentionErrors> measure_errors(const Lesson&, const AttentionSize&);
void report_errors(const AttentionSize&, const std::vector<AttentionErrors>&, Report&);

// The losses of a training run, and its activation memory.
struct Trained {
  std::vector<double> losses;
  int64_t activations = 0;  // bytes, at the peak
};
void check_training(const TransformerConfig&, int64_t batch, const Trained& plain, const Trained& flash,
                    Report&);

}  // namespace gradus
