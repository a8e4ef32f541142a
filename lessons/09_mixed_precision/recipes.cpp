#include "lessons/09_mixed_precision/recipes.h"

#include <iostream>

#include "src/core/table.h"
#include "src/train/formulas.h"

namespace gradus {

const std::vector<ScaledRecipe>& scaled_recipes() {
  static const std::vector<ScaledRecipe> all{{"fp32", 0},           {"mixed", 0},    {"mixed-fp16", 0},
                                             {"mixed-fp16", 65536}, {"zero", 65536}, {"half", 65536}};
  return all;
}

void recipes_table() {
  Table table({"recipe", "weights, activations", "master copy", "gradients of weights", "AdamW's states",
               "bytes per parameter"});
  for (const std::string_view name : kRecipes) {
    const Precision p = precision_recipe(name);
    table.row({std::string(name), name_of(p.value), p.master ? "fp32" : "none", name_of(p.gradient),
               name_of(p.state), std::to_string(bytes_per_parameter(p, 2))});
  }
  std::cout << "\nRecipes; \"scaled\": with dynamic loss scaling\n\n" << table;
}

void check_states(const ScaledRecipe& recipe, const Usage& peak, int64_t parameters, Report& report) {
  const int64_t each = bytes_per_parameter(precision_recipe(recipe.recipe), 2);
  report.check_equal(
      recipe.name() + ": bytes of weights, gradients and states, " + std::to_string(each) + " per parameter",
      peak[Kind::Weight] + peak[Kind::Master] + peak[Kind::Gradient] + peak[Kind::Optimizer],
      each * parameters);
}

void check_losses(int64_t steps, int64_t tokens, const std::vector<double>& losses, Report& report) {
  const std::string skip = tokens < kLargeBatch ? "is for large batches" : is_for_steps(kWholeRun, steps);
  for (size_t i = 1; i + 1 < losses.size(); ++i) {  // without half, the last recipe, which diverges
    const ScaledRecipe& recipe = scaled_recipes()[i];
    const std::string name = recipe.name() + ": held-out loss, relative increase over fp32";
    const double increase = losses[i] / losses[0] - 1;
    if (recipe.recipe == "mixed-fp16" && recipe.scale == 0)  // depends on the seed: 0.2 % to 3 %
      report.check_at_least(name + ", because gradients underflow", increase, 0.001, skip);
    else
      report.check_at_most(name, increase, 0.01, skip);
  }
}

}  // namespace gradus
