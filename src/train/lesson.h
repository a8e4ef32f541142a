// Common to the main function of every lesson: the flags, the context made from them, the report.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/core/args.h"
#include "src/tensor/context.h"
#include "src/train/machine.h"
#include "src/train/report.h"
#include "src/train/run_trace.h"

namespace gradus {

// Declares the common flags; the lesson adds its own to `args` and then calls done().
struct Lesson {
  Lesson(int argc, char** argv, const std::string& name, const std::string& about, int64_t default_steps);

  Args args;
  std::string name, device, json, print, check;
  int64_t steps, memory;
  uint64_t seed;
  std::unique_ptr<RunTrace> trace;  // nullptr: --trace is not given

  // Call this after the last flag. Tries to open every file that the run will write, so that an error comes
  // now and not after the work: that of --json, `files`, whose folders must exist, and `made`, whose folders
  // are created if missing. Empty names stand for files that are not written.
  void done(const std::vector<std::string>& files = {}, const std::vector<std::string>& made = {});
  Report report() const { return Report(name, current().device); }
  int finish(Report& report) const;  // writes the file of --trace, then calls Report::finish
  // For simulated ranks, as ClusterArgs::made.
  std::function<void(int64_t, Context&)> traced_ranks() const;
  // For all processes except the one that reports: no file is written.
  void write_nothing() { json.clear(), trace = nullptr; }
  std::string plot(const std::string& file) const { return "build/plots/" + file; }
};

// A context with the lesson's flags: seed, --check, --trace, and device and budget unless others are given.
struct LessonContext : Context {
  explicit LessonContext(const Lesson& lesson) : LessonContext(lesson, lesson.device, lesson.memory) {}
  LessonContext(const Lesson&, const std::string& device, int64_t memory_budget);
};

// Runs a lesson's body and turns its exception into one sentence on stderr and an exit code: 2 for bad
// arguments, 1 for any other error.
int run_lesson(const std::function<int()>& body);

}  // namespace gradus
