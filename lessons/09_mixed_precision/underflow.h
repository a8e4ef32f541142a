// What 16 bits lose: gradients that become 0, and updates that change nothing.
#pragma once
#include <string>
#include <vector>

#include "src/train/accumulate.h"
#include "src/train/report.h"

namespace gradus {

// Gradients of a batch, with weights and activations in `recipe` and the loss multiplied by `scale`; they are
// divided by it again. The weights are those of `trained`, rounded. Of all weights, one parameter behind the
// other, in micro-batches; and of the logits of one micro-batch, of a batch with `counted` targets.
std::vector<double> weight_gradients(const std::string& recipe, double scale, const Transformer& trained,
                                     const TextBatch& batch, int64_t micro_batches);
std::vector<double> logit_gradients(const std::string& recipe, double scale, const Transformer& trained,
                                    const TextBatch& micro, int64_t counted);

// Of the numbers that are not 0 in `exact`, the share that are 0 in `g`.
double share_lost(const std::vector<double>& exact, const std::vector<double>& g);

// Gradients of one batch in fp16 with several scales, compared with fp32's; a picture of their sizes. The
// model was trained `steps` steps.
void underflow_table(const Transformer& trained, int64_t steps, const TextBatch& batch, int64_t micro_batches,
                     const std::string& picture, Report& report);
struct Underflow {
  double scale, lost, off;  // the share of the logits' gradients that became 0; the distance of the weights'
};
// Scales of 1, 2^8, 2^16 and 2^24. A batch of fewer targets than 32,768 has larger gradients, and so has a
// model of few steps: they are not checked.
void check_underflow(int64_t targets, int64_t steps, const std::vector<Underflow>& scales, Report& report);

// Some updates with a loss scale that begins too high.
struct ScaledUpdate {
  double scale;
  int64_t changed, weights;  // so many of the weights
  bool skipped;
};
std::vector<ScaledUpdate> scaled_updates(const Transformer& trained, const TextBatch& batch);
// Of a model trained for so many steps: before, its gradients are too small for the scale to be too high.
void scale_table(const std::vector<ScaledUpdate>& updates, int64_t steps, Report& report);

// The share of the weights that stay as they are in an update by AdamW, with weights of type t and no other
// copy of them.
double share_unchanged(DType t, double learning_rate, const Transformer& trained, const TextBatch& batch);

struct Unchanged {
  double learning_rate, fp32, fp16, bf16;  // shares
};
std::vector<Unchanged> unchanged_weights(const Transformer& trained, const TextBatch& batch);
void updates_table(const std::vector<Unchanged>& rates, Report& report);

}  // namespace gradus
