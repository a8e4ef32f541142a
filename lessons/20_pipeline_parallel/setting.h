// A training by a layout of ranks.
#pragma once
#include "lessons/20_pipeline_parallel/alone.h"

namespace gradus {

struct PipelineSetting {
  Layout layout;
  Schedule schedule;
  Keep keep = Keep::All;  // of each block, until its backward pass
  std::string load = {}, save = {};
};
struct PipelineRun {
  std::vector<double> losses, seconds;  // of each step
  int64_t unlike = 0;  // parameters, or parts of them, that differ from the reference in any bit
  Usage peak = {};
};

}  // namespace gradus
