// What a run needs and how fast it can be, before it runs.
#pragma once
#include "lessons/22_scoreboard/trainer.h"
#include "src/train/machine.h"

namespace gradus {

// The second step of a run on meta, of the rank that needs most: its bytes are the run's own.
struct PlannedStep {
  Usage peak;
  int64_t reserved = 0;
  double seconds = 0;  // at least, on such a machine
};
PlannedStep plan_step(const TrainSettings& s, const Text& text, const Machine& machine);

}  // namespace gradus
