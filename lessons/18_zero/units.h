// What units are for: the weights of a hundred linear layers, gathered at once or layer by layer.
#pragma once
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

// A hundred linear layers in stage 3 on 4 ranks of the device meta.
struct UnitsRun {
  std::string name;
  int64_t gathered, layers;  // gathered at once, at most: measured bytes, expected layers
  double sent;               // elements per rank / (Psi (N-1)/N)
};
constexpr int64_t kUnitLayers = 100, kLayerBytes = (64 + 1) * 64 * 4;
std::vector<UnitsRun> run_units();
void units_table(const std::vector<UnitsRun>& runs, Report& report);

}  // namespace gradus
