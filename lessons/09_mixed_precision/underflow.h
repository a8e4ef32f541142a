// What 16 bits lose: gradients that become 0, and updates that change nothing.
#pragma once
#include <string>
#include <vector>

#include "lessons/07_accumulation/accumulate.h"
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

// Gradients of one batch in fp16 with several scales, beside fp32's; a picture of their sizes. `untrained`:
// why those of this model decide nothing.
void underflow_table(const Transformer& trained, const TextBatch& batch, int64_t micro_batches,
                     const std::string& picture, const std::string& untrained, Report& report);

// Some updates with a loss scale that begins too high.
void scale_table(const Transformer& trained, const TextBatch& batch, Report& report);

// The share of the weights that stay as they are in an update by AdamW, with weights of type t and no other
// copy of them.
double share_unchanged(DType t, double learning_rate, const Transformer& trained, const TextBatch& batch);

void updates_table(const Transformer& trained, const TextBatch& batch, Report& report);

}  // namespace gradus
