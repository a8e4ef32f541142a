// What 16 bits lose: gradients that underflow, and updates that round away.
#pragma once
#include <string>
#include <vector>

#include "src/train/accumulate.h"
#include "src/train/report.h"

namespace gradus {

// The gradient of all weights, one parameter after the other. Weights and activations are in the formats of
// `recipe`, with the weights of `trained`, rounded. The loss is multiplied by `scale`, and the result is
// divided by it.
std::vector<double> weight_gradients(const std::string& recipe, double scale, const Transformer& trained,
                                     const TextBatch& batch, int64_t micro_batches);
// The same for activations of one micro-batch of a batch with `targets` targets: the logits, and the queries
// of the first block's attention.
enum class Activation : uint8_t { Logits, Queries };
std::vector<double> activation_gradients(Activation which, const std::string& recipe, double scale,
                                         const Transformer& trained, const TextBatch& micro, int64_t targets);

// The elements of a gradient of logits whose token occurs in `text`, or of those whose token does not occur.
std::vector<double> of_tokens(bool occur, const std::string& text, const std::vector<double>& logits);

// The share of the numbers other than 0 in `exact` that are 0 in `g`.
double share_lost(const std::vector<double>& exact, const std::vector<double>& g);

// Part (b): gradients of one batch in fp16 with several loss scales, compared with those in fp32, and a
// picture of their sizes in fp32. The model was trained for `steps` steps on `text`.
void underflow_table(const Transformer& trained, int64_t steps, const std::string& text,
                     const TextBatch& batch, int64_t micro_batches, const std::string& picture,
                     Report& report);
struct Underflow {
  double scale;
  double occur, absent, queries;  // shares lost: logits of bytes in the text, and not in it; queries
  double weights;                 // relative difference of the weights' gradient
};
// For scales of 1, 2^8, 2^16 and 2^24. Not checked with fewer than 32,768 targets or few training steps,
// because gradients are larger then.
void check_underflow(int64_t targets, int64_t steps, const std::vector<Underflow>& scales, Report& report);

// Part (c): updates with a loss scale that starts too high.
struct ScaledUpdate {
  double scale;
  int64_t changed, weights;  // weights that the update changed, and all weights
  bool skipped;
};
std::vector<ScaledUpdate> scaled_updates(const Transformer& trained, const TextBatch& batch);
// `steps`: how long the model was trained. After few steps its gradients are too small for an overflow.
void scale_table(const std::vector<ScaledUpdate>& updates, int64_t steps, Report& report);

// Part (d): the share of the weights that one AdamW update leaves unchanged, if the weights are of type t and
// there is no master copy.
double share_unchanged(DType t, double learning_rate, const Transformer& trained, const TextBatch& batch);

struct Unchanged {
  double learning_rate, fp32, fp16, bf16;  // shares
};
std::vector<Unchanged> unchanged_weights(const Transformer& trained, const TextBatch& batch);
void updates_table(const std::vector<Unchanged>& rates, Report& report);

}  // namespace gradus
