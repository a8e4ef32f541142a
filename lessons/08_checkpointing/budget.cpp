#include "lessons/08_checkpointing/budget.h"

#include <iostream>
#include <limits>
#include <map>

#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/train/memory_need.h"

namespace gradus {

// A policy for the first blocks: the cheapest one of those that save the same number of bytes.
struct Partial {
  double cost = 0;
  std::vector<BlockSegment> segments;
};
using Front = std::map<int64_t, Partial>;  // by saved bytes; policies that save more cost less

static void offer(Front& front, int64_t bytes, const Partial& p) {
  const auto more = front.upper_bound(bytes);
  if (more != front.begin() && std::prev(more)->second.cost <= p.cost) return;
  front[bytes] = p;
  for (auto next = front.upper_bound(bytes); next != front.end() && next->second.cost >= p.cost;)
    next = front.erase(next);
}

// Only checkpointed segments need more than one block: their blocks are recomputed together.
static std::vector<BlockSegment> choices(int64_t left) {
  std::vector<BlockSegment> all{{1, Keep::All}, {1, Keep::LessAttention}};
  for (int64_t k = 1; k <= left; ++k) all.push_back({k, Keep::Input});
  return all;
}

std::optional<Policy> best_policy(const Sizes& s, const CostOf& cost, int64_t budget) {
  const int64_t L = s.config.layers;
  std::vector<Front> cut(size_t(L) + 1);
  cut[0][0] = {};
  for (int64_t at = 0; at < L; ++at)
    for (const auto& [before, partial] : cut[size_t(at)])
      for (const BlockSegment& g : choices(L - at)) {
        // BEGIN SOLUTION 08.5
        if (before + most_within(g, s) > budget) continue;
        Partial longer{partial.cost + cost(g), partial.segments};
        longer.segments.push_back(g);
        offer(cut[size_t(at + g.blocks)], before + kept(g, s), longer);
        // STUB: todo("08.5", "extend `partial` by g and offer it, if it fits", g, before, partial, cut, budget, cost, most_within, kept, offer);
        // END SOLUTION 08.5
      }
  std::optional<Policy> best;
  for (const auto& [bytes, whole] : cut[size_t(L)])  // the last one that fits is the cheapest
    if (bytes + s.tail() <= budget) best = Policy{"best", whole.segments};
  const Policy least{"from-the-start", {}, true};
  if (!best && peak_activations(least, s) <= budget) best = least;
  return best;
}

// Tries all policies that begin with the segments of `p`, for the `left` blocks after them.
static void try_all(const Sizes& s, const CostOf& cost, int64_t budget, int64_t left, Policy& p,
                    std::optional<Policy>& best) {
  const int64_t L = s.config.layers;
  if (left == 0) {
    if (peak_activations(p, s) <= budget && (!best || extra_cost(p, cost, L) < extra_cost(*best, cost, L)))
      best = p;
    return;
  }
  for (int64_t k = 1; k <= left; ++k)
    for (const Keep keep : {Keep::All, Keep::LessAttention, Keep::Input}) {
      p.segments.push_back({k, keep});
      try_all(s, cost, budget, left - k, p, best);
      p.segments.pop_back();
    }
}
std::optional<Policy> best_by_brute_force(const Sizes& s, const CostOf& cost, int64_t budget) {
  check(s.config.layers <= 10, "brute force: ", s.config.layers,
        " blocks have too many policies; use at most 10");
  Policy p{"brute force", {}};
  std::optional<Policy> best;
  try_all(s, cost, budget, s.config.layers, p, best);
  return best;
}

std::vector<Policy> pareto_front(const Sizes& s, const CostOf& cost) {
  std::vector<Policy> front;
  int64_t budget = std::numeric_limits<int64_t>::max();
  while (const std::optional<Policy> p = best_policy(s, cost, budget)) {
    const int64_t needs = peak_activations(*p, s);
    check(needs <= budget, "best_policy: the peak of ", text_of(*p), " is ", needs,
          " bytes, above the budget of ", budget);
    front.push_back(*p);
    budget = needs - 1;
  }
  return front;
}

std::vector<BudgetChoice> choose_for_budgets(const TransformerConfig& model, int64_t batch,
                                             const CountPolicy& count) {
  const Sizes sizes{model, batch, model.context};
  const CostOf flops = flops_of(sizes);
  const std::vector<Policy> front = pareto_front(sizes, flops);
  const int64_t most = peak_activations(front.front(), sizes), least = peak_activations(front.back(), sizes);
  std::vector<BudgetChoice> all;
  for (int i = 0; i < 20; ++i) {
    const int64_t budget = least + (most - least) * i / 19;
    const Policy best = *best_policy(sizes, flops, budget);
    all.push_back(
        {budget, best, count(model, batch, best).most, extra_cost(best, flops, model.layers), std::nullopt});
    if (const std::optional<Policy> brute = best_by_brute_force(sizes, flops, budget))
      all.back().brute = extra_cost(*brute, flops, model.layers);
  }
  return all;
}

void budgets_table(const std::vector<BudgetChoice>& choices, Report& report) {
  Table table({"activation budget", "cheapest policy", "peak of activations", "recomputed GFLOP/step"});
  int64_t over = 0;
  std::optional<double> worst;  // the largest difference of costs
  for (size_t i = 0; i < choices.size(); ++i) {
    const BudgetChoice& c = choices[i];
    over += c.measured > c.budget;
    if (c.brute) worst = std::max(worst.value_or(0), std::abs(c.cost - *c.brute));
    if (i < 2 || i % 4 == 0 || i + 1 == choices.size())
      table.row(
          {bytes_text(c.budget), text_of(c.policy), bytes_text(c.measured), number_text(c.cost * 1e-9)});
  }
  std::cout << "\n(b) Cheapest policy for 7 of 20 budgets; [k]: checkpointed segment of k blocks\n\n"
            << table;
  report.check_equal("(b) budgets exceeded, of " + std::to_string(choices.size()), over, 0);
  report.check_at_most("(b) FLOPs: largest difference from exhaustive search", worst.value_or(INFINITY), 0);
}

void draw_policies(const std::string& times, const std::string& flops, const TransformerConfig& model,
                   int64_t batch, const std::vector<double>& seconds) {
  const Sizes sizes{model, batch, model.context};
  const double step = double(count_on_meta(model, batch, {"store-all", {}}).flops);
  const auto relative_flops = [&, cost = flops_of(sizes)](const Policy& p) {
    return 1 + extra_cost(p, cost, model.layers) / step;
  };
  const auto mib = [&](const Policy& p) { return double(peak_activations(p, sizes)) / 0x1p20; };
  LinePlot by_time{"Measured time", "step time / step time of store-all", "peak of activations, MiB", {}, {}};
  LinePlot by_flops{"Counted FLOPs", "FLOPs / FLOPs of store-all", "peak of activations, MiB", {}, {}};
  const std::vector<Policy> all = policies(model.layers);
  for (size_t i = 0; i < all.size(); ++i) {
    Series dot{all[i].name, {seconds[i] / seconds[0]}, {mib(all[i])}, Series::Marks::Dots};
    by_time.series.push_back(dot);
    dot.x = {relative_flops(all[i])};
    by_flops.series.push_back(dot);
  }
  Series best{"best policy per budget", {}, {}, Series::Marks::Line};
  for (const Policy& p : pareto_front(sizes, flops_of(sizes)))
    best.x.insert(best.x.end(), 2, relative_flops(p)),
        best.y.insert(best.y.end(), {best.y.empty() ? mib(p) : best.y.back(), mib(p)});
  by_flops.series.push_back(best);
  write_file(times, draw(by_time));
  write_file(flops, draw(by_flops));
}

Policy fastest_that_fits(const TransformerConfig& model, int64_t batch, int64_t memory) {
  const Sizes sizes{model, batch, model.context};
  const std::vector<Policy> front = pareto_front(sizes, flops_of(sizes));
  const auto run_with = [&](const Policy& p) {
    return TrainingRun{model, batch, model.context, [=](Transformer& m) { p.apply(m); }};
  };
  for (const Policy& p : front)
    if (fits(run_with(p), memory)) {
      std::cout << "fastest policy that fits into " << bytes_text(memory) << ": " << text_of(p) << "\n";
      return p;
    }
  fail("checkpointing: no policy fits into ", bytes_text(memory), "; ", text_of(front.back()),
       " needs least, ", bytes_text(memory_need(run_with(front.back())).reserved),
       "; use a smaller batch or a larger --memory");
}

}  // namespace gradus
