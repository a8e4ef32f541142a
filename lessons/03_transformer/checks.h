// The checks of lesson 03: bytes, the loss, and the held-out loss compared with the entropy floor.
#pragma once
#include <optional>

#include "src/train/step_recorder.h"

namespace gradus {

struct TrainedGpt {
  const StepRecorder& run;
  int64_t parameters, gradient_bytes;  // the gradients after the last step
  double held_out;
  std::optional<double> floor;
  bool nears_floor;  // within the default number of steps
};
void check_trained(const TrainedGpt& t, Report& report);

}  // namespace gradus
