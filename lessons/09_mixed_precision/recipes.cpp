#include "lessons/09_mixed_precision/recipes.h"

#include "src/train/formulas.h"

namespace gradus {

const std::vector<ScaledRecipe>& scaled_recipes() {
  static const std::vector<ScaledRecipe> all{{"fp32", 0},           {"mixed", 0},    {"mixed-fp16", 0},
                                             {"mixed-fp16", 65536}, {"zero", 65536}, {"half", 65536}};
  return all;
}

void check_states(const ScaledRecipe& who, const Usage& peak, int64_t parameters, Report& report) {
  const int64_t each = bytes_per_parameter(precision_recipe(who.recipe), 2);
  report.check_equal(who.name() + ": bytes of states, " + std::to_string(each) + " per parameter",
                     peak[Kind::Weight] + peak[Kind::Master] + peak[Kind::Gradient] + peak[Kind::Optimizer],
                     each * parameters);
}

void check_losses(int64_t steps, int64_t tokens, const std::vector<double>& losses, Report& report) {
  const std::string skip = tokens < kLargeBatch ? "is for large batches" : is_for_steps(kWholeRun, steps);
  for (size_t i = 1; i + 1 < losses.size(); ++i) {  // but that of half, which diverges
    const ScaledRecipe& who = scaled_recipes()[i];
    const double worse = losses[i] / losses[0] - 1;
    if (who.recipe == "mixed-fp16" && who.scale == 0)
      report.check_at_least(who.name() + ": held-out loss, worse than fp32's by", worse, 0.015, skip);
    else
      report.check_at_most(who.name() + ": held-out loss, worse than fp32's by", worse, 0.01, skip);
  }
}

}  // namespace gradus
