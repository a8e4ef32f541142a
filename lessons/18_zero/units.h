// What a unit is good for: a hundred linear layers, gathered at once, or one at a time.
#pragma once
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

// y = a hundred linear layers of x, in stage 3 on 4 ranks of the device meta: bytes of weights gathered at
// once at most, those of a layer, and what the elements that a rank sends are of Psi (N-1)/N.
struct UnitsRun {
  std::string name;
  int64_t gathered, layers;  // at once: measured, and how many layers' bytes that should be
  double sent;
};
constexpr int64_t kUnitLayers = 100, kLayerBytes = (64 + 1) * 64 * 4;
std::vector<UnitsRun> run_units();
void units_table(const std::vector<UnitsRun>& runs, Report& report);

}  // namespace gradus
