// The checks of (e) and (f): the same training op by op, fused by hand, captured, and captured and compiled.
#pragma once
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

struct ComparedWays {
  int64_t chains;                           // different chains in a step
  std::vector<std::vector<double>> losses;  // of the four ways
  double op_by_op, replay;                  // seconds per step, of the host
};
// few: why nothing was captured; no_chains: why nothing was compiled; otherwise empty.
void check_ways(const ComparedWays& ways, int64_t least_chains, const std::string& few,
                const std::string& no_chains, Report& report);

}  // namespace gradus
