// The memory of a run, and a lower bound of its step time, predicted before the run.
#pragma once
#include "lessons/22_scoreboard/trainer.h"
#include "src/train/machine.h"

namespace gradus {

// The second step of a run on meta. Its bytes are exactly those of the run itself.
struct PlannedStep {
  Usage peak;            // of the rank that reserves most
  int64_t reserved = 0;  // by the same rank
  double seconds = 0;    // lower bound on the machine, of the slowest rank
};
// budget: bytes of each rank, 0: no limit. Throws OutOfMemory if the budget is too small.
PlannedStep plan_step(const TrainSettings& s, const Text& text, const Machine& machine, int64_t budget = 0);

// --keep=auto: chooses the fastest policy (by its lower bound) with which each rank fits into `budget` bytes.
// Errors: no budget; nothing fits.
void choose_policy(TrainSettings& s, const Text& text, int64_t budget);

}  // namespace gradus
