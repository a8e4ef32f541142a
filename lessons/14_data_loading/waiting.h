// The waiting time of a step for its batch, with 0, 1, 2 and 4 workers.
#pragma once
#include <functional>

#include "src/data/batch_loader.h"
#include "src/train/lesson.h"

namespace gradus {

// The source of the samples, and whether the step leaves a core to the workers.
struct Place {
  std::string name;
  double latency;  // seconds until a batch arrives from a remote store; 0: a file on this machine
  bool core_left;  // the step leaves a core to the workers; false: it computes on all cores
};
struct LoadedRun {
  std::vector<double> losses, seconds, waited;  // of each step
  Usage peak = {}, host_peak = {};              // of the device, and of the memory where batches are made
};
constexpr int64_t kNoRestart = -1;
using LoadedLoop = std::function<LoadedRun(const Place&, int64_t workers, int64_t restart_after)>;

// `fill` after the latency of the place.
BatchLoader::Fill from_place(BatchLoader::Fill fill, const Place& place);

struct Waiting {
  Place place;
  int64_t workers;
  LoadedRun last = {};
  double step = 0, waited = 0;  // seconds: median over the rounds of a run's mean over its steps
};
// Alternating runs of all places with all numbers of workers, `rounds` times. The latency of the store is the
// time of three steps.
std::vector<Waiting> measure_waiting(const LoadedLoop& loop, int64_t rounds);

// The waiting time of a step that computes for `step` seconds, if one worker makes a batch in `make` seconds.
double predicted_waiting(double make, double step, int64_t workers);

// The number of losses that differ bitwise between two runs, or that one of them lacks. Two NaN, as on meta,
// count as equal.
int64_t different_losses(const std::vector<double>& a, const std::vector<double>& b);

// Checks the losses of a run that was restarted in mid-epoch.
void check_restart(const std::vector<double>& restarted, const std::vector<double>& whole, Report& report);

// batch_bytes: the inputs and targets of one step.
void report_waiting(const std::vector<Waiting>& runs, int64_t batch_bytes, const std::string& picture,
                    Report& report);

}  // namespace gradus
