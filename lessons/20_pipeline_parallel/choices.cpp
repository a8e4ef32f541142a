#include "lessons/20_pipeline_parallel/choices.h"

#include <algorithm>
#include <iostream>

#include "src/core/progress.h"
#include "src/core/table.h"

namespace gradus {

// Measures one stage per block: the first stage also has the embedding, the last stage the head.
static std::vector<int64_t> cut_by_cost(PlanSetting set) {
  const int64_t L = set.model.layers, p = set.layout.pipeline;
  if (L < 3) return even_cuts(L, p);
  set.layout.pipeline = L, set.ends = {};
  const std::vector<RankUse> uses = measure_ranks(set);
  const auto cost = [&](int64_t stage) {
    const RankUse& use = uses[size_t(stage * set.layout.ranks() / L)];
    return use.of({Pass::Forward, 0, stage}).seconds + use.of({Pass::Backward, 0, stage}).seconds;
  };
  const double block = cost(1);
  return cut_blocks(std::vector<double>(size_t(L), block), cost(0) - block, cost(L - 1) - block, p);
}

void cuts_table(Report& report, Plan (*plan_of_cut)(const PlanSetting&)) {
  PlanSetting set{.model = transformer_config("gpt2"), .layout = {.pipeline = 4}, .micro_batches = 16};
  set.model.precision = precision_recipe("mixed"), set.machine = machine_called("A100");
  set.network = network_called("nvlink");
  std::cout
      << "\n(c) GPT-2 in 4 stages on A100, 16 micro-batches: the head takes as long as several blocks\n";
  Table table({"cut", "blocks per rank", "bubble", "step, lower bound"});
  std::vector<double> bubbles;
  for (const bool by_cost : {false, true}) {
    set.ends = by_cost ? cut_by_cost(set) : even_cuts(set.model.layers, 4);
    const Plan plan = plan_of_cut(set);
    std::string blocks;
    int64_t from = 0;
    for (const int64_t end : set.ends) blocks += std::to_string(end - from) + " ", from = end;
    table.row({by_cost ? "by cost" : "equal numbers of blocks", blocks, percent_text(plan.bubble),
               seconds_text(plan.seconds)});
    bubbles.push_back(plan.bubble);
  }
  std::cout << table;
  report.check_at_most("(c) bubble, by cost / bubble, equal numbers of blocks", bubbles[1] / bubbles[0], 1);
}

std::vector<Layout> layouts_of(int64_t ranks, const TransformerConfig& c, int64_t batch) {
  std::vector<Layout> all;
  for (int64_t context = 1; context <= 2; ++context)
    for (int64_t p = 1; p <= std::min(ranks, c.layers); ++p)
      for (int64_t d = 1; d <= ranks; ++d) {
        const Layout l{p, d, std::max<int64_t>(ranks / (p * d * context), 1), context};
        if (l.ranks() == ranks && c.heads % l.tensor == 0 && batch % d == 0) all.push_back(l);
      }
  return all;
}

void layouts_table(const WhatIf& w, int64_t batch) {
  const TransformerConfig c = transformer_config(w.model);
  check(c.output_head != OutputHead::Pooled && c.token_types == 0, "--model=", w.model,
        ": it must be like GPT-2 or GPT-NeoX");
  check(w.ranks <= 8 || w.ranks % 8 == 0, "--ranks=", w.ranks,
        ": a node has 8 devices; use at most 8 ranks, or a multiple of 8");
  PlanSetting set{.model = c, .machine = machine_called(w.machine), .network = network_of(w)};
  set.model.precision = precision_recipe("mixed"), set.model.attention = attention_flash;
  struct Choice {
    PlanSetting set;
    Plan plan;
  };
  std::vector<Choice> choices;
  const std::vector<Layout> all = layouts_of(w.ranks, c, batch);
  Progress progress("layouts", int64_t(all.size()));
  int64_t done = 0;
  for (const Layout& l : all) {
    progress.step(++done);
    if (l.context > 1 && c.rotary > 0) continue;
    set.layout = l, set.micro_batches = batch / l.data;
    set.ends = l.pipeline > 1 ? cut_by_cost(set) : std::vector<int64_t>{};
    choices.push_back({set, plan_of(set)});
  }
  check(!choices.empty(), "--ranks=", w.ranks, ": ", w.model,
        " has no layout of this number of ranks; use a different number");
  const auto fits = [&](const Choice& x) { return x.plan.largest_peak() <= set.machine.memory; };
  std::stable_sort(choices.begin(), choices.end(), [&](const Choice& a, const Choice& b) {
    return std::pair(!fits(a), a.plan.seconds) < std::pair(!fits(b), b.plan.seconds);
  });
  progress.done();
  std::cout << w.model << ", " << count_text(c.parameter_count()) << " parameters, on " << w.ranks << " x "
            << w.machine << " (" << bytes_text(set.machine.memory) << "); " << batch << " sequences of "
            << c.context << " tokens per step, one sequence per micro-batch\nnetwork: " << set.network.name
            << "; " << set.network.source << "\n\n";
  Table table({"layout", "largest peak", "fits", "bubble", "step, lower bound", "tokens/s, upper bound"});
  for (const Choice& x : choices)
    table.row({x.set.layout.text(), bytes_text(x.plan.largest_peak()), fits(x) ? "yes" : "no",
               percent_text(x.plan.bubble), seconds_text(x.plan.seconds),
               count_text(int64_t(double(batch * c.context) / x.plan.seconds))});
  std::cout << table;
  if (!fits(choices[0])) return void(std::cout << "\nno layout fits into the memory of the devices\n");
  const PlanSetting& best = choices[0].set;
  double seconds = 0;
  int64_t peak = 0;
  for (const RankUse& u :
       measure_ranks(best, one_forward_one_backward(best.layout.pipeline, best.micro_batches)))
    seconds = std::max(seconds, u.step_seconds), peak = std::max(peak, u.peak());
  std::cout << "\nfirst layout, one step on simulated ranks: " << seconds_text(seconds) << ", largest peak "
            << bytes_text(peak) << "\n";
}

}  // namespace gradus
