// gradus train, eval, sample and plan.
#pragma once
#include <string>
#include <vector>

#include "src/core/args.h"

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

}  // namespace gradus
