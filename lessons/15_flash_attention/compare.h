// attention_plain and attention_flash with the same q, k and v: what they save, how long they take, what
// comes out.
#pragma once
#include "src/autograd/tape.h"
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
  AttentionShape shape() const;
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
  double forward = NAN, backward = NAN;  // seconds, medians; NaN on meta
  std::vector<double> y, dqkv;           // none on meta
  double seconds() const { return forward + backward; }
};
// Causal attention, forward and backward, `repeats` times and once before to warm up.
AttentionRun run_attention(const Lesson&, const std::string& device, AttentionOp, const AttentionSize&,
                           int repeats);

// The largest |a - b|; NaN if some a or b is.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);

// Both for each length; where plain attention would take long or much memory, on meta, which has its bytes.
struct ByLength {
  AttentionSize size;
  AttentionRun plain, flash;
};
std::vector<ByLength> compare_lengths(const Lesson&, AttentionSize, const std::vector<int64_t>& lengths,
                                      int64_t longest_plain);
void report_lengths(const std::vector<ByLength>&, const std::string& picture, Report&);

// Errors of both against attention_plain in fp64.
void report_errors(const Lesson&, const AttentionSize&, Report&);

// Heads of keys and values for each head of queries, for every 2 and for every 8.
void report_groups(const Lesson&, AttentionSize, Report&);

}  // namespace gradus
