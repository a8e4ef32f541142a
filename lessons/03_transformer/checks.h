// The lesson's checks of what its training gave.
#pragma once
#include <optional>

#include "src/train/step_recorder.h"

namespace gradus {

struct TrainedGpt {
  const StepRecorder& run;
  int64_t parameters, gradient_bytes;  // the gradients after the last step
  double held_out;
  std::optional<double> floor;
  bool nears_floor;  // in the default steps
};
void check_trained(const TrainedGpt& t, Report& report);

}  // namespace gradus
