// gradus train, eval, sample and plan.
#pragma once
#include <string>
#include <vector>

#include "lessons/22_scoreboard/trainer.h"
#include "src/train/machine.h"

namespace gradus {

struct Command {
  std::string name, about;
  int (*run)(Args& args);
};
const std::vector<Command>& commands();
// The one that the first word without dashes calls; nullptr: there is no such word.
const Command* command_in(int argc, char** argv);
// `words` without the command.
int run_command(const Command& command, std::vector<std::string> words);

// The second step of a run on meta, of the rank that needs most: its bytes are the run's own.
struct PlannedStep {
  Usage peak;
  int64_t reserved = 0;
  double seconds = 0;  // at least, on such a machine
};
PlannedStep plan_step(const TrainSettings& s, const Text& text, const Machine& machine);

}  // namespace gradus
