// A lesson as its flags make it.
#pragma once
#include <string>
#include <vector>

#include "src/train/lesson.h"

namespace gradus {

// Without done().
inline Lesson lesson_with(std::vector<std::string> flags, const char* name, int64_t steps = 1) {
  flags.insert(flags.begin(), "program");
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  return Lesson(int(argv.size()), argv.data(), name, "what it shows", steps);
}

}  // namespace gradus
