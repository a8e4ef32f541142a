#include "lessons/13_profiler/costs.h"

#include <cmath>
#include <iostream>

#include "src/core/timing.h"
#include "src/tensor/profile_range.h"

namespace gradus {

double seconds_of_a_range() {
  constexpr int kRanges = 100'000;
  Context context("cpu");  // without a profiler
  volatile int64_t sink = 0;
  const auto with = [&] {
    for (int i = 0; i < kRanges; ++i) {
      const ProfileRange range("a range");
      sink = i;
    }
  };
  const auto without = [&] {
    for (int i = 0; i < kRanges; ++i) sink = i;
  };
  std::vector<double> seconds;
  for (int i = 0; i < 15; ++i)
    seconds.push_back((measure(with, 1, 0).median - measure(without, 1, 0).median) / kRanges);
  return summarize(seconds).median;
}

// The share of a step's time inside its outermost ranges. The rest of the time has no name in the trace.
static double covered(const TracedStep& step) {
  double seconds = 0;
  for (const TracedSpan& r : step.ranges)
    if (r.track == ProfileTrack::Program && r.path == r.name) seconds += r.seconds();
  return seconds / step.seconds;
}

void report_costs(const Round& round, const Machine& machine, Report& report) {
  if (!current().device.has_data()) return;
  std::cout << "\n(b) Time by op, sums over " << round.run.steps.size()
            << " steps of the loop with all bottlenecks fixed\n";
  if (!std::isnan(machine.bandwidth))
    std::cout << "Roofs of this machine, measured: " << number_text(machine.fp32_flops * 1e-9)
              << " GFLOP/s by a large matrix product, " << number_text(machine.bandwidth * 1e-9)
              << " GB/s by a copy\n";
  std::cout << "\n"
            << profile_table("op", round.run.ops, 8) << "\n(c) Time by kernel, the same steps\n\n"
            << profile_table("kernel", round.run.kernels, 8);
  const double range = seconds_of_a_range();
  std::cout << "\nTime of a range, if no profiler records it: " << number_text(range * 1e9) << " ns\n";
  check_costs(round, range, report);
}

void check_costs(const Round& round, double range_seconds, Report& report) {
  std::vector<double> shares, seconds;
  for (const TracedStep& step : round.run.steps)
    shares.push_back(covered(step)), seconds.push_back(step.seconds);
  report.timing_at_least("share of step time inside ranges", summarize(shares).median, 0.99);
  report.timing_at_least("step time without profiler / with profiler",
                         round.step_seconds / summarize(seconds).median, 0.9);
  report.timing_at_least("5 ns (allowed) / time of a range without a profiler", 5e-9 / range_seconds, 1);
}

}  // namespace gradus
