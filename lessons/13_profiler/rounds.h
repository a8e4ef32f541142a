// The rounds of lesson 13: profile the loop, fix the bottleneck with the largest predicted saving, until none
// is left.
#pragma once
#include <functional>

#include "lessons/13_profiler/diagnosis.h"
#include "lessons/13_profiler/plants.h"
#include "src/train/lesson.h"
#include "src/train/profile_table.h"

namespace gradus {

struct LoopRun {
  std::vector<double> losses, seconds;  // of each step
  std::vector<TracedStep> steps;        // if the loop was profiled: read from the trace file
  std::vector<ProfileRow> kernels, ops;
};
using RunLoop = std::function<LoopRun(const Plants&, bool profiled)>;

struct Round {
  Plants plants;
  LoopRun run;
  std::vector<Finding> findings;
  double step_seconds = 0;  // median, without a profiler
};
// Each round profiles the loop after the first finding of the previous round was fixed. The last round has no
// finding, or its first finding is fixed already.
std::vector<Round> search(const RunLoop& loop, int64_t timed_repeats);

struct LoopCounts {  // per step
  int64_t calls, bytes_to_host, loads;
};
LoopCounts counts_of(const TracedStep& step);

void report_rounds(const std::vector<Round>& rounds, const TransformerConfig& model, int64_t tokens,
                   Report& report);

}  // namespace gradus
