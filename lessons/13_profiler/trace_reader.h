// Reads a trace file. Lesson 13 knows nothing else of a run.
#pragma once
#include <string>
#include <vector>

#include "src/train/profiler.h"

namespace gradus {

struct TracedSpan {
  std::string name, category;
  // Of a range: the names of the ranges around it and its own, as in "forward/h.2/linear". Of a kernel: the
  // names of the ranges that called it. The range of the step is left out.
  std::string path;
  ProfileTrack track;
  double begin, end;  // seconds
  int64_t bytes = 0;
  double seconds() const { return end - begin; }
};
struct TracedStep {
  double seconds;
  std::vector<TracedSpan> ranges;   // of both tracks, in the order in which they begin
  std::vector<TracedSpan> kernels;  // in the order of the calls
};
// The steps of the first process. An Error if the file is not a trace of the profiler or has no steps.
std::vector<TracedStep> read_steps(const std::string& path);

}  // namespace gradus
