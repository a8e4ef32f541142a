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
// Blocks of equal cost.
inline std::vector<int64_t> even_cuts(int64_t blocks, int64_t chunks) {
  return cut_blocks(std::vector<double>(size_t(blocks), 1), 0, 0, chunks);
}

struct PipelineRun {
  std::vector<double> losses, seconds;  // of each step
  int64_t unlike = 0;  // parameters, or parts of them, that differ from the reference in any bit
  Usage peak;
};

}  // namespace gradus
