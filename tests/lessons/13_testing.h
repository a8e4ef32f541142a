// Ranges and kernels of a trace for tests.
#pragma once
#include <string>

#include "lessons/13_profiler/trace_reader.h"

namespace gradus {

inline TracedSpan range(const std::string& path, double begin, double end, const char* category = "range",
                        int64_t bytes = 0) {
  return {path.substr(path.rfind('/') + 1), category, path, ProfileTrack::Program, begin, end, bytes};
}
inline TracedSpan kernel(const std::string& path, const char* category, double seconds,
                         int64_t bytes = 1000) {
  return {path.substr(path.rfind('/') + 1), category, path, ProfileTrack::Kernels, 0, seconds, bytes};
}
inline TracedSpan wise(const std::string& path, double seconds = 1, int64_t bytes = 1000) {
  return kernel(path, "element-wise", seconds, bytes);
}
}  // namespace gradus
