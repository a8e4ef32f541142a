// How long a step waits for its batch, with 0, 1, 2 and 4 workers.
#pragma once
#include <functional>

#include "src/data/batch_loader.h"
#include "src/train/lesson.h"

namespace gradus {

// Where samples come from, and who may compute meanwhile.
struct Place {
  std::string name;
  double latency;  // seconds until a batch has come from a store that is far away; 0: it is on this machine
  bool core_left;  // the step leaves a core to the workers; false: it computes on all
};
struct LoadedRun {
  std::vector<double> losses, seconds, waited;  // of each step
  Usage peak = {}, host_peak = {};              // of the device, and of the memory where batches are made
};
constexpr int64_t kNoRestart = -1;
using LoadedLoop = std::function<LoadedRun(const Place&, int64_t workers, int64_t restart_after)>;

// The same, after the place's latency.
BatchLoader::Fill from_place(BatchLoader::Fill fill, const Place& place);

struct Waiting {
  Place place;
  int64_t workers;
  LoadedRun last = {};
  double step = 0, waited = 0;  // seconds: the mean of a run's steps, and of all rounds the median
};
// All places with all numbers of workers, alternating, `rounds` times. The store's batches take three steps.
std::vector<Waiting> measure_waiting(const LoadedLoop& loop, int64_t rounds);

// Of a step that computes for `step` seconds, and whose batch takes one worker `make` seconds.
double predicted_waiting(double make, double step, int64_t workers);

// How many losses of a run differ bitwise from those of another, or are missing. Two that are NaN, as on
// meta, do not differ.
int64_t different_losses(const std::vector<double>& a, const std::vector<double>& b);

// batch_bytes: of the inputs and targets of a step.
void report_waiting(const std::vector<Waiting>& runs, int64_t batch_bytes, const std::string& picture,
                    Report& report);

}  // namespace gradus
