// What every lesson's main shares: the common flags, the context made from them, the report.
#pragma once
#include <functional>
#include <string>

#include "src/core/args.h"
#include "src/tensor/context.h"
#include "src/train/machine.h"
#include "src/train/report.h"

namespace gradus {

// Declares the common flags; the lesson adds its own to `args` and then calls args.done().
struct Lesson {
  Lesson(int argc, char** argv, const std::string& name, const std::string& about, int64_t default_steps);

  Args args;
  std::string name, device, json, print, check;
  int64_t steps, memory;
  uint64_t seed;

  void apply(Context&) const;  // the flags that change how the context runs: --check
  Report report() const { return Report(name, current().device); }
  std::string plot(const std::string& file) const { return "build/plots/" + file; }
};

// Runs a lesson's body and turns what it throws into one sentence on stderr and an exit code: 2 for bad
// arguments, 1 for any other error.
int run_lesson(const std::function<int()>& body);

}  // namespace gradus
