#include "lessons/22_scoreboard/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lessons/08_checkpointing/policies.h"
#include "lessons/18_zero/what_if.h"
#include "src/core/json.h"
#include "src/core/table.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

PlannedStep plan_step(const TrainSettings& s, const Text& text, const Machine& machine, int64_t budget) {
  PlannedStep most;
  const auto second_step = [&](Comm* comm) {
    Training training(s, text, comm);
    Meter& meter = current().device.meter();
    training.step();
    meter.reset_totals();
    const double begin = comm ? comm->seconds() : 0;
    training.step();
    const double seconds = comm ? comm->seconds() - begin : predicted_seconds(meter, machine);
    if (meter.peak_reserved() > most.reserved)
      most.reserved = meter.peak_reserved(), most.peak = meter.at_peak();
    most.seconds = std::max(most.seconds, seconds);
  };
  if (s.layout.ranks() == 1) {
    const Context context("meta", uint64_t(s.seed), budget);
    second_step(nullptr);
    return most;
  }
  ClusterArgs args{
      .ranks = s.layout.ranks(), .device = "meta", .seed = uint64_t(s.seed), .memory_budget = budget};
  args.network = network_of({.machine = machine.name});
  check_ranks(args.network, args.ranks);
  args.computed = [&](int64_t, Context& c) { return predicted_seconds(c.device.meter(), machine); };
  run_cluster(args, [&](Comm& comm) { second_step(&comm); });
  return most;
}

void choose_policy(TrainSettings& s, const Text& text, int64_t budget) {
  check(budget > 0, "--keep=auto needs a budget: add for example --memory=64MiB");
  std::string fastest;
  double least = INFINITY;
  for (const Policy& policy : policies(config_of(s).layers)) {
    s.keep = policy.name;
    try {  // the fastest policy is the same on every machine
      const double seconds = plan_step(s, text, machine_called("A100"), budget).seconds;
      if (seconds < least) fastest = policy.name, least = seconds;
    } catch (const OutOfMemory&) {
    }
  }
  check(!fastest.empty(), "--keep=auto: no policy fits into ", bytes_text(budget),
        "; use more --micro-batches or a larger --memory");
  s.keep = fastest;
  Json used = Json::parse(s.used);  // a resumed run uses the same policy
  used["keep"] = fastest;
  s.used = json_text(used);
}

}  // namespace gradus
