// A trace file, read back: what lesson 13 knows of a run, and all that it knows.
#pragma once
#include <string>
#include <vector>

#include "src/train/profiler.h"

namespace gradus {

struct TracedSpan {
  std::string name, category;
  // Of a range, the names of those around it and its own: "forward/h.2/linear"; of a kernel, those of the
  // ranges that it was called in. Without the step's.
  std::string path;
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
// The steps of the first process. An Error if the file is no such trace, or has none.
std::vector<TracedStep> read_steps(const std::string& path);

}  // namespace gradus
