// Lesson 13's search: profile, name what costs most, mend it, until nothing is left.
#pragma once
#include <functional>

#include "lessons/13_profiler/diagnosis.h"
#include "lessons/13_profiler/plants.h"
#include "src/train/lesson.h"
#include "src/train/profile_table.h"

namespace gradus {

struct LoopRun {
  std::vector<double> losses, seconds;  // of each step
  std::vector<TracedStep> steps;        // if it was profiled: read from the trace file
  std::vector<ProfileRow> kernels, ops;
};
using RunLoop = std::function<LoopRun(const Plants&, bool profiled)>;

struct Round {
  Plants plants;
  LoopRun run;
  std::vector<Finding> findings;
  double step_seconds = 0;  // median, without a profiler
};
// Each round mends the first finding of the one before; the last has none, or one that was mended already.
std::vector<Round> search(const RunLoop& loop, int64_t timed_repeats);

struct LoopCounts {  // in a step
  int64_t calls, bytes_to_host, loads;
};
LoopCounts counts_of(const TracedStep& step);

void report_rounds(const std::vector<Round>& rounds, const TransformerConfig& model, int64_t tokens,
                   Report& report);

}  // namespace gradus
