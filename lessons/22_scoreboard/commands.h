// The commands gradus train, eval, sample and plan.
#pragma once
#include <string>
#include <vector>

#include "lessons/22_scoreboard/trainer.h"
#include "src/parallel/comm/processes.h"

namespace gradus {

struct Command {
  std::string name, about;
  int (*run)(Args& args);  // returns the exit code
};
const std::vector<Command>& commands();
// The command that the first word without dashes names; nullptr: there is no such word, so the lesson runs.
const Command* command_in(int argc, char** argv);
// words: the arguments of the program. They may include the name of the command.
int run_command(const Command& command, std::vector<std::string> words);

// The flags of all commands.
struct RunFlags {
  explicit RunFlags(Args& args);
  std::string device;
  int64_t memory;
  RanksArgs ranks;
  std::string load;
  TrainSettings settings;
};
int gradus_train(Args& args);  // train_command.cpp

}  // namespace gradus
