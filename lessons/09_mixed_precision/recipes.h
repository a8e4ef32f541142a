// The recipes that lesson 09 trains with, and the checks of their bytes and held-out losses.
#pragma once
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

struct ScaledRecipe {
  std::string recipe;
  float scale;  // the first loss scale; 0: no loss scaling
  std::string name() const { return recipe + (scale > 0 ? ", scaled" : ""); }
};
const std::vector<ScaledRecipe>& scaled_recipes();

void recipes_table();  // prints the formats of each recipe

// Checks the bytes of weights, master copy, gradients and optimizer states at the peak.
void check_states(const ScaledRecipe& recipe, const Usage& peak, int64_t parameters, Report& report);

// Compares the held-out losses, in the order of scaled_recipes(), with that of fp32. The bounds are for runs
// of kWholeRun steps with batches of at least kLargeBatch tokens; different runs are not checked.
constexpr int64_t kWholeRun = 40, kLargeBatch = 32768;
void check_losses(int64_t steps, int64_t tokens, const std::vector<double>& losses, Report& report);

}  // namespace gradus
