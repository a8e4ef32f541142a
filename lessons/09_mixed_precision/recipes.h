// What lesson 09 trains in, and what it checks of each: the bytes of the states, and the held-out losses.
#pragma once
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

struct ScaledRecipe {
  std::string recipe;
  float scale;  // that loss scaling begins with; 0: no scaling
  std::string name() const { return recipe + (scale > 0 ? ", scaled" : ""); }
};
const std::vector<ScaledRecipe>& scaled_recipes();

// Weights, master copies, gradients and states at the peak, of so many parameters.
void check_states(const ScaledRecipe& who, const Usage& peak, int64_t parameters, Report& report);

// Held-out losses, in the order of scaled_recipes(), compared with fp32's. The bounds are meant for a run of
// so many steps, and for a batch of so many tokens at least; others are not checked.
constexpr int64_t kWholeRun = 40, kLargeBatch = 32768;
void check_losses(int64_t steps, int64_t tokens, const std::vector<double>& losses, Report& report);

}  // namespace gradus
