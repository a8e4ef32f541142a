// How long a step waits for its batch, with so many workers, and with a core for them or without.
#pragma once
#include <functional>

#include "src/train/lesson.h"

namespace gradus {

struct LoadedRun {
  std::vector<double> losses, seconds, waited;  // of each step
};
constexpr int64_t kNoRestart = -1;
using LoadedLoop = std::function<LoadedRun(int64_t workers, int64_t restart_after)>;

struct Waiting {
  int64_t workers;
  bool core_for_workers;
  std::vector<double> losses;
  double step = 0, waited = 0;  // medians of all rounds, in seconds
};
// Alternating, `rounds` times: 0, 1, 2 and 4 workers, while the step computes on all cores, or leaves one.
std::vector<Waiting> measure_waiting(const LoadedLoop& loop, int64_t rounds);

// How many losses of a run are not to the bit those of another; none without data.
int64_t different_losses(const std::vector<double>& a, const std::vector<double>& b);

void report_waiting(const std::vector<Waiting>& runs, const std::string& picture, Report& report);

}  // namespace gradus
