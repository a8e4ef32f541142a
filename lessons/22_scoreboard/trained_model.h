// A model in training, on one device or on several ranks, with one interface.
#pragma once
#include "lessons/22_scoreboard/settings.h"
#include "src/train/accumulate.h"

namespace gradus {

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  virtual Transformer& model() = 0;  // this rank's part of the model
  virtual Parameters& own() = 0;     // the parameters that this rank's optimizer updates
  // Computes the gradients of a batch, the same batch on all ranks; returns its loss, the same on all ranks.
  virtual double add_gradients(const TextBatch& batch) = 0;
};
// Without ranks: one device (lessons 03 to 16); only data ranks: a stage of ZeRO (17, 18); tensor, context or
// pipeline ranks: a layout (19, 20). Errors: settings that do not work on several ranks.
std::unique_ptr<TrainedModel> trained_model(const TrainSettings& s, Comm* ranks);

}  // namespace gradus
