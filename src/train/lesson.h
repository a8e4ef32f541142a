// What every lesson's main shares: the common flags, the context made from them, the report.
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
  std::unique_ptr<RunTrace> trace;  // nullptr: none is asked for

  // No more flags. Tries every file that the run is to write, so that what cannot be written is refused now
  // and not after the work: --json's, `files`, whose folder must exist, and `made`, whose folder is made if
  // missing. Empty names stand for what is not written.
  void done(const std::vector<std::string>& files = {}, const std::vector<std::string>& made = {});
  Report report() const { return Report(name, current().device); }
  int finish(Report& report) const;  // writes --trace's file, and what Report::finish does
  // For simulated ranks, as ClusterArgs::made.
  std::function<void(int64_t, Context&)> traced_ranks() const;
  // For processes that work beside the one that reports: no file is written.
  void write_nothing() { json.clear(), trace = nullptr; }
  std::string plot(const std::string& file) const { return "build/plots/" + file; }
};

// A context with the lesson's flags: its device, seed and budget, or others, --check and --trace.
struct LessonContext : Context {
  explicit LessonContext(const Lesson& lesson) : LessonContext(lesson, lesson.device, lesson.memory) {}
  LessonContext(const Lesson&, const std::string& device, int64_t memory_budget);
};

// Runs a lesson's body and turns what it throws into one sentence on stderr and an exit code: 2 for bad
// arguments, 1 for any other error.
int run_lesson(const std::function<int()>& body);

}  // namespace gradus
