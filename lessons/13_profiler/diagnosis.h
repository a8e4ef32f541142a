// What keeps a training step from being as fast as it could be, found in its trace alone.
#pragma once
#include <string>
#include <vector>

#include "lessons/13_profiler/trace_reader.h"

namespace gradus {

enum class Bottleneck : uint8_t {
  Loading,     // the step waits for its batch
  CopyToHost,  // it waits until much has been copied to the host
  Chain        // element-wise kernels, one after the other, where one would do
};
const char* name_of(Bottleneck);

struct Finding {
  Bottleneck what;
  std::string where;   // the ranges: "data/load text", "forward/h.*"
  double seconds = 0;  // of a step, that could be saved at the most
  int64_t count = 0;   // in a step: times that it waits for loading; bytes that are copied; kernels in chains
};

// In all recorded steps; the costliest first.
std::vector<Finding> diagnose(const std::vector<TracedStep>& steps);

}  // namespace gradus
