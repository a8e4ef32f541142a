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
// budget: bytes that each rank may have, 0: any number; an OutOfMemory error if that is not enough.
PlannedStep plan_step(const TrainSettings& s, const Text& text, const Machine& machine, int64_t budget = 0);

// --keep=auto: sets the policy whose step takes the least time, of those with which each rank fits
// into `budget` bytes. Errors, with a sentence: no budget; nothing fits.
void choose_policy(TrainSettings& s, const Text& text, int64_t budget);

}  // namespace gradus
