// The cheapest policy for a budget of activation memory, by dynamic programming over the blocks.
#pragma once
#include <functional>
#include <optional>

#include "lessons/08_checkpointing/policies.h"
#include "src/train/report.h"

namespace gradus {

// The policy of least cost whose peak_activations() is at most `budget`, or none.
std::optional<Policy> best_policy(const Sizes& s, const CostOf& cost, int64_t budget);
// Exhaustive search over all policies of segments: 3 * 4^(L-1) policies. L <= 10.
std::optional<Policy> best_by_brute_force(const Sizes& s, const CostOf& cost, int64_t budget);

// The best policies, from the cheapest to the one with the least memory.
std::vector<Policy> pareto_front(const Sizes& s, const CostOf& cost);

// Twenty budgets, from the least to the most that a policy needs.
struct BudgetChoice {
  int64_t budget;
  Policy policy;                // found by dynamic programming
  int64_t measured;             // its peak of activations, in bytes, on meta
  double cost;                  // its recomputed FLOPs
  std::optional<double> brute;  // those of the policy that the exhaustive search finds, if it finds one
};
using CountPolicy = std::function<Counted(const TransformerConfig&, int64_t batch, const Policy&)>;
std::vector<BudgetChoice> choose_for_budgets(const TransformerConfig& model, int64_t batch,
                                             const CountPolicy& count = count_on_meta);
void budgets_table(const std::vector<BudgetChoice>& choices, Report& report);

// Two pictures, with the peak of activations on the y axis. `times`: the policies(L) at their measured step
// times, relative to the first policy. `flops`: at their FLOPs, and a line for the best policy per budget.
void draw_policies(const std::string& times, const std::string& flops, const TransformerConfig& model,
                   int64_t batch, const std::vector<double>& seconds);

// The fastest policy with which training fits into `memory` bytes, found by training on meta. If none fits,
// an error gives the bytes of the policy that needs least.
Policy fastest_that_fits(const TransformerConfig& model, int64_t batch, int64_t memory);

}  // namespace gradus
