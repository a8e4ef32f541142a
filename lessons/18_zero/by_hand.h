// The page's small examples: eight parameters on four ranks, and a step of stage 3 over time.
#pragma once
#include <ostream>
#include <string>
#include <vector>

namespace gradus {

void shards_by_hand(std::ostream& out);

// When a rank gathers, uses and drops each of three layers on 4 ranks of the device meta. Each collective and
// each matrix product takes one time step; a layer has one product forward and two backward.
struct UnitTimeline {
  std::vector<std::string> units;  // a letter per time step; print_unit_timelines explains them
  int64_t most_gathered = 0;       // bytes of weights gathered at once, at most
};
UnitTimeline unit_timeline(bool prefetch, bool keep_gathered);
void print_unit_timelines(std::ostream& out);  // with the meaning of the letters

}  // namespace gradus
