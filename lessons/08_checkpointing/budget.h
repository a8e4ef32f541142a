// The fastest way to keep a peak of activations: dynamic programming over what is kept of each block.
#pragma once
#include <functional>
#include <optional>

#include "lessons/08_checkpointing/policies.h"
#include "src/train/report.h"

namespace gradus {

// The policy of least cost whose peak_activations() is at most `budget`; none if there is none.
std::optional<Policy> best_policy(const Sizes& s, const CostOf& cost, int64_t budget);
// The same by trying all segmentations, each with every way to keep: 3 * 4^(L-1) policies. L <= 10.
std::optional<Policy> best_by_brute_force(const Sizes& s, const CostOf& cost, int64_t budget);

// From the fastest to the one with the least memory, each with less memory than the one before.
std::vector<Policy> pareto_front(const Sizes& s, const CostOf& cost);

// Twenty budgets between the least and the most: what dynamic programming chooses, the bytes that this needs
// on meta, and its FLOPs compared with those of the best of all policies, if one of segments fits.
struct BudgetChoice {
  int64_t budget;
  Policy policy;
  int64_t measured;
  double cost;
  std::optional<double> brute;
};
using CountPolicy = std::function<Counted(const TransformerConfig&, int64_t batch, const Policy&)>;
std::vector<BudgetChoice> choose_for_budgets(const TransformerConfig& model, int64_t batch,
                                             const CountPolicy& count = count_on_meta);
void budgets_table(const std::vector<BudgetChoice>& choices, Report& report);

// Memory against time: a dot for each of policies(L), with its measured seconds a step, and the front of the
// best policies, each with the time that its FLOPs let expect.
void draw_policies(const std::string& path, const TransformerConfig& model, int64_t batch,
                   const std::vector<double>& seconds);

// The fastest policy with which training fits into `memory` bytes, found by training on meta. If none fits,
// an error says how much the one with the least memory needs.
Policy fastest_that_fits(const TransformerConfig& model, int64_t batch, int64_t memory);

}  // namespace gradus
