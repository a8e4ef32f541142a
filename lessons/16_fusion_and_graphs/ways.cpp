#include "lessons/16_fusion_and_graphs/ways.h"

#include "lessons/15_flash_attention/compare.h"

namespace gradus {

void check_ways(const ComparedWays& ways, int64_t least_chains, const std::string& few,
                const std::string& no_chains, Report& report) {
  report.check_at_least("(e) different chains in a step", double(ways.chains), double(least_chains),
                        few.empty() ? no_chains : few);
  for (const size_t i : {1, 2, 3}) {
    const char* const names[] = {"", "fused by hand", "captured", "captured, compiled"};
    report.check_at_most(std::string(names[i]) + ": largest difference of losses from op by op",
                         largest_difference(ways.losses[i], ways.losses[0]), i == 1 ? 1e-4 : 0);
  }
  if (few.empty())
    report.timing_at_least("(f) host time per step, op by op / replay", ways.op_by_op / ways.replay, 3);
}

}  // namespace gradus
