#include "lessons/22_scoreboard/plan.h"

#include <algorithm>

#include "lessons/18_zero/what_if.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

PlannedStep plan_step(const TrainSettings& s, const Text& text, const Machine& machine) {
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
    const Context context("meta", uint64_t(s.seed));
    second_step(nullptr);
    return most;
  }
  ClusterArgs args{.ranks = s.layout.ranks(), .device = "meta", .seed = uint64_t(s.seed)};
  args.network = network_of({.machine = machine.name});
  check_ranks(args.network, args.ranks);
  args.computed = [&](int64_t, Context& c) { return predicted_seconds(c.device.meter(), machine); };
  run_cluster(args, [&](Comm& comm) { second_step(&comm); });
  return most;
}

}  // namespace gradus
