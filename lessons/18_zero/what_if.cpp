#include "lessons/18_zero/what_if.h"

#include <cmath>
#include <iostream>

#include "lessons/17_data_parallel/scaling.h"
#include "lessons/18_zero/step.h"
#include "src/core/table.h"

namespace gradus {

Network network_of(const WhatIf& w) {
  if (w.network != "auto") return network_called(w.network);
  const Network& own = network_called(machine_called(w.machine).link);
  return {"nodes of 8 with " + own.name, own.source + "; 100 Gb/s per rank between nodes", own.link, 8,
          network_called("ethernet100").link};
}

static ZeroSetting setting(const WhatIf& w, int stage) {
  ZeroSetting set{.model = transformer_config(w.model), .ranks = w.ranks, .sequences = w.sequences};
  set.tokens = set.model.context;
  set.model.precision = precision_recipe("zero");
  set.model.attention = attention_flash;
  set.zero = {.stage = stage, .unit = unit_per_block, .overlap = true};
  set.network = network_of(w);
  set.machine = machine_called(w.machine);
  return set;
}

static bool fits(ZeroSetting set) {
  set.budget = set.machine.memory;
  try {
    zero_step(set);
    return true;
  } catch (const OutOfMemory&) {
    return false;
  }
}

void what_if_table(const WhatIf& w) {
  check(transformer_config(w.model).output_head != OutputHead::Pooled, "--model=", w.model,
        ": this model has no loss without labels; choose a model that predicts tokens");
  const ZeroSetting first = setting(w, 0);
  std::cout << w.model << ", " << count_text(first.model.parameter_count()) << " parameters, on " << w.ranks
            << " x " << w.machine << " (" << bytes_text(first.machine.memory) << "; " << first.machine.source
            << ")\nnetwork: " << first.network.name << "; " << first.network.source << "\n"
            << w.sequences << " sequences of " << first.tokens << " tokens per rank\n\n";
  Table table({"stage", "model states", "peak", "fits", "largest gathered", "sent per rank",
               "step, lower bound", "tokens/s, upper bound"});
  for (const int stage : {0, 1, 2, 3}) {
    const ZeroSetting set = setting(w, stage);
    const ZeroStep s = zero_step(set);
    const double tokens = double(w.ranks * w.sequences * set.tokens);
    table.row({std::to_string(stage), bytes_text(state_bytes(s.between)), bytes_text(s.peak.allocated()),
               fits(set) ? "yes" : "no", bytes_text(s.most_gathered), bytes_text(2 * s.sent),
               seconds_text(s.seconds), number_text(tokens / s.seconds)});
  }
  std::cout << table;
}

std::vector<StageTimes> stage_times(const WhatIf& w) {
  const auto seconds = [&](const Network& network, int64_t ranks, int stage, bool keeps = false) {
    ZeroSetting set = setting(w, stage);
    set.network = network, set.ranks = ranks, set.zero.keep_gathered = keeps;
    return zero_step(set).seconds;
  };
  const double alone = seconds({}, 1, 3);
  std::vector<StageTimes> times;
  for (const Network& network : networks_of_a100())
    times.push_back({network.name, alone, seconds(network, w.ranks, 1), seconds(network, w.ranks, 2),
                     seconds(network, w.ranks, 3), seconds(network, w.ranks, 3, true)});
  return times;
}

void times_table(const WhatIf& w, const std::vector<StageTimes>& times, Report& report) {
  std::cout << "\n(d) Lower bounds of ms per step (at published peak rates, with prefetch): " << w.model
            << " on " << w.ranks << " x " << w.machine << ", " << w.sequences
            << " sequences per rank; one rank: no network\n";
  Table table({"network", "one rank", "stage 1", "stage 2", "stage 3", "SHARD_GRAD_OP"});
  const auto ms = [](double seconds) { return number_text(1e3 * seconds); };
  double slowest = NAN;  // stage 3 / stage 1 on the slowest network
  for (const StageTimes& t : times) {
    table.row({t.network, ms(t.alone), ms(t.stage_1), ms(t.stage_2), ms(t.stage_3), ms(t.kept)});
    if (t.network == "ethernet10") slowest = t.stage_3 / t.stage_1;
  }
  std::cout << table;
  report.check_at_least("(d) stage 3 / stage 1 at 10 Gb/s, lower bound (3 Psi / 2 Psi = 1.5)", slowest, 1.4);
  report.check_at_most("(d) stage 3 / stage 1 at 10 Gb/s, upper bound", slowest, 1.6);
}

}  // namespace gradus
