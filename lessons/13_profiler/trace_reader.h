// A trace file, read back: what lesson 13 knows of a run, and all that it knows.
#pragma once
#include <string>
#include <vector>

#include "src/train/profiler.h"

namespace gradus {

struct TracedSpan {
  std::string name, category;
  std::string path;   // the ranges around it, but for the step, and its own name: "forward/h.2/linear"
  ProfileTrack track;
  double begin, end;  // seconds
  int64_t bytes = 0;
  double seconds() const { return end - begin; }
};
struct TracedStep {
  double seconds;
  std::vector<TracedSpan> ranges;   // on both tracks, by their begin
  std::vector<TracedSpan> kernels;  // in the order of the calls
};
// The whole steps of the first process. An Error if the file is no such trace, or has none.
std::vector<TracedStep> read_steps(const std::string& path);

}  // namespace gradus
