#include "lessons/08_checkpointing/budget.h"

#include <limits>
#include <map>

namespace gradus {

Costs costs_in_flops(const Sizes& s) {
  return {double(s.forward_flops()), double(s.tail_flops()), double(s.attention_flops())};
}

static double cost_of(const BlockSegment& g, const Costs& c) {
  if (g.keep == Keep::Input) return double(g.blocks) * c.block - c.tail;
  return g.keep == Keep::LessAttention ? double(g.blocks) * c.attention : 0;
}
double extra_cost(const Policy& p, const Costs& c, int64_t L) {
  if (p.from_the_start) return double(L * (L + 1) / 2) * c.block - double(L) * c.tail;
  double sum = 0;
  for (const BlockSegment& g : p.segments) sum += cost_of(g, c);
  return sum;
}

// The blocks before some block are cut, in the cheapest way that keeps so many bytes of them.
struct Partial {
  double cost = 0;
  std::vector<BlockSegment> segments;
};
using Front = std::map<int64_t, Partial>;  // by the bytes; who keeps more costs less

static void offer(Front& front, int64_t bytes, const Partial& p) {
  const auto more = front.upper_bound(bytes);
  if (more != front.begin() && std::prev(more)->second.cost <= p.cost) return;
  front[bytes] = p;
  for (auto next = front.upper_bound(bytes); next != front.end() && next->second.cost >= p.cost;)
    next = front.erase(next);
}

// Segments of several blocks make sense only where they run again together.
static std::vector<BlockSegment> choices(int64_t left) {
  std::vector<BlockSegment> all{{1, Keep::All}, {1, Keep::LessAttention}};
  for (int64_t k = 1; k <= left; ++k) all.push_back({k, Keep::Input});
  return all;
}

std::optional<Policy> best_policy(const Sizes& s, const Costs& costs, int64_t budget) {
  const int64_t L = s.config.layers;
  std::vector<Front> cut(size_t(L) + 1);
  cut[0][0] = {};
  for (int64_t at = 0; at < L; ++at)
    for (const auto& [before, partial] : cut[size_t(at)])
      for (const BlockSegment& g : choices(L - at)) {
        // BEGIN SOLUTION 08.2
        if (before + most_within(g, s) > budget) continue;
        Partial longer{partial.cost + cost_of(g, costs), partial.segments};
        longer.segments.push_back(g);
        offer(cut[size_t(at + g.blocks)], before + kept(g, s), longer);
        // STUB: todo("08.2", "offer what is longer by g, if it fits", g, before, partial, cut, offer, cost_of);
        // END SOLUTION 08.2
      }
  std::optional<Policy> best;
  for (const auto& [bytes, whole] : cut[size_t(L)])  // costs fall with the bytes
    if (bytes + s.tail() <= budget) best = Policy{"best", whole.segments};
  const Policy least{"from-the-start", {}, true};
  if (!best && peak_activations(least, s) <= budget) best = least;
  return best;
}

// All ways to cut and keep the blocks that `p` does not cover.
static void try_all(const Sizes& s, const Costs& costs, int64_t budget, int64_t left, Policy& p,
                    std::optional<Policy>& best) {
  const int64_t L = s.config.layers;
  if (left == 0) {
    if (peak_activations(p, s) <= budget && (!best || extra_cost(p, costs, L) < extra_cost(*best, costs, L)))
      best = p;
    return;
  }
  for (int64_t k = 1; k <= left; ++k)
    for (const Keep keep : {Keep::All, Keep::LessAttention, Keep::Input}) {
      p.segments.push_back({k, keep});
      try_all(s, costs, budget, left - k, p, best);
      p.segments.pop_back();
    }
}
std::optional<Policy> best_by_brute_force(const Sizes& s, const Costs& costs, int64_t budget) {
  check(s.config.layers <= 10, "brute force: ", s.config.layers,
        " blocks have too many policies; at most 10");
  Policy p{"brute force", {}};
  std::optional<Policy> best;
  try_all(s, costs, budget, s.config.layers, p, best);
  return best;
}

std::vector<Policy> pareto_front(const Sizes& s, const Costs& costs) {
  std::vector<Policy> front;
  int64_t budget = std::numeric_limits<int64_t>::max();
  while (const std::optional<Policy> p = best_policy(s, costs, budget)) {
    front.push_back(*p);
    budget = peak_activations(*p, s) - 1;
  }
  return front;
}

}  // namespace gradus
