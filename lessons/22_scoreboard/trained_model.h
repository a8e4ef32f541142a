// A model in training, on one device or shared out among ranks, behind one call.
#pragma once
#include "lessons/22_scoreboard/settings.h"
#include "src/train/accumulate.h"

namespace gradus {

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  virtual Transformer& model() = 0;  // what this rank has of it
  virtual Parameters& own() = 0;     // what this rank's optimizer updates
  // Adds the gradients of a batch, which all ranks are given; returns its loss, the same on all.
  virtual double add_gradients(const TextBatch& batch) = 0;
};
// On one device (lessons 03 to 16); of data ranks alone, ZeRO of a stage (17, 18); of other ranks, too, a
// layout (19, 20). Errors, with a sentence: what ranks cannot do.
std::unique_ptr<TrainedModel> trained_model(const TrainSettings& s, Comm* ranks);

}  // namespace gradus
