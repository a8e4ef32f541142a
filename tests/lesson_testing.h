// A Lesson made from flags.
#pragma once
#include <string>
#include <vector>

#include "src/train/lesson.h"

namespace gradus {

// Does not call done().
inline Lesson lesson_with(std::vector<std::string> flags, const char* name, int64_t steps = 1) {
  flags.insert(flags.begin(), "program");
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  return Lesson(int(argv.size()), argv.data(), name, "what it shows", steps);
}

}  // namespace gradus
