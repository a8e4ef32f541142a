// Finds the bottlenecks of a training step in its trace alone.
#pragma once
#include <string>
#include <vector>

#include "lessons/13_profiler/trace_reader.h"

namespace gradus {

enum class Bottleneck : uint8_t {
  Loading,     // the step waits for its batch
  CopyToHost,  // the step waits for a large copy to the host
  Chain        // consecutive element-wise kernels that one kernel could replace
};
const char* name_of(Bottleneck);

struct Finding {
  Bottleneck what;
  std::string where;   // the ranges: "data/load text", "forward/h.*"
  double seconds = 0;  // per step: the predicted saving, an estimate
  int64_t count = 0;   // per step: loads; bytes copied; kernels in chains
};

// The findings of all recorded steps, the largest predicted saving first.
std::vector<Finding> diagnose(const std::vector<TracedStep>& steps);

}  // namespace gradus
