#include "lessons/14_data_loading/waiting.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <numeric>
#include <thread>

#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"

namespace gradus {

BatchLoader::Fill from_place(BatchLoader::Fill fill, const Place& place) {
  return [fill = std::move(fill), latency = place.latency](int64_t step, int64_t worker, int32_t* inputs,
                                                           int32_t* targets) {
    std::this_thread::sleep_for(std::chrono::duration<double>(latency));
    fill(step, worker, inputs, targets);
  };
}

// While it lives, the CPU's kernels leave one core free, if there is more than one.
class LeaveACore {
 public:
  explicit LeaveACore(bool leaves) {
    if (leaves) omp_set_num_threads(std::max(1, all_ - 1));
  }
  ~LeaveACore() { omp_set_num_threads(all_); }
  LeaveACore(const LeaveACore&) = delete;

 private:
  const int all_ = omp_get_max_threads();
};

// A mean, because workers that begin together finish together: some steps wait long, and others do not wait.
static double mean_after_warm_up(const std::vector<double>& of_steps) {
  const auto begin = of_steps.begin() + std::min<ptrdiff_t>(2, ptrdiff_t(of_steps.size()) - 1);
  return std::accumulate(begin, of_steps.end(), 0.0) / double(of_steps.end() - begin);
}

std::vector<Waiting> measure_waiting(const LoadedLoop& loop, int64_t rounds) {
  std::vector<Waiting> runs;
  const Place all{.name = "file, step on all cores", .latency = 0, .core_left = false},
      left{.name = "file, one core free", .latency = 0, .core_left = true};
  Place store{.name = "remote store, one core free", .latency = 0, .core_left = true};
  {
    const LeaveACore leave(true);
    store.latency = 3 * summarize(loop(left, 0, kNoRestart).seconds).median;
  }
  for (const Place& place : {all, left, store})
    for (const int64_t workers : {0, 1, 2, 4}) runs.push_back({place, workers});
  std::vector<std::vector<double>> seconds(runs.size()), waited(runs.size());
  for (int64_t round = 0; round < rounds; ++round)
    for (size_t i = 0; i < runs.size(); ++i) {
      const LeaveACore leave(runs[i].place.core_left);
      const LoadedRun& run = runs[i].last = loop(runs[i].place, runs[i].workers, kNoRestart);
      seconds[i].push_back(mean_after_warm_up(run.seconds));
      waited[i].push_back(mean_after_warm_up(run.waited));
    }
  for (size_t i = 0; i < runs.size(); ++i)
    runs[i].step = summarize(seconds[i]).median, runs[i].waited = summarize(waited[i]).median;
  return runs;
}

double predicted_waiting(double make, double step, int64_t workers) {
  // BEGIN SOLUTION 14.2
  if (workers == 0) return make;
  return std::max(0.0, make / double(workers) - step);
  // STUB: todo("14.2", "the waiting time of a step", make, step, workers);
  // END SOLUTION 14.2
}

int64_t different_losses(const std::vector<double>& a, const std::vector<double>& b) {
  int64_t different = std::abs(int64_t(a.size()) - int64_t(b.size()));
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    different += a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]));
  return different;
}

// The time of a step that does not wait: the shortest measured with the same number of cores.
static double computing_step(const std::vector<Waiting>& runs, bool core_left) {
  double least = INFINITY;
  for (const Waiting& w : runs)
    if (w.place.core_left == core_left) least = std::min(least, w.step - w.waited);
  return least;
}

static void print_waiting(const std::vector<Waiting>& runs) {
  Table table({"source of the text", "workers", "step", "computing", "waiting", "waiting / step",
               "predicted waiting"});
  double make = 0;
  for (const Waiting& w : runs) {
    if (w.workers == 0) make = w.waited;
    const double predicted = predicted_waiting(make, computing_step(runs, w.place.core_left), w.workers);
    table.row({w.workers == 0 ? w.place.name : "", std::to_string(w.workers), seconds_text(w.step),
               seconds_text(w.step - w.waited), seconds_text(w.waited), percent_text(w.waited / w.step),
               w.workers == 0 ? "-" : seconds_text(predicted)});
  }
  std::cout << "\n(b) Mean time of a step = computing + waiting for its batch, on " << omp_get_max_threads()
            << " cores (median of alternating runs)\n\n"
            << table << "t_step, the shortest computing time: " << seconds_text(computing_step(runs, true))
            << " with one core free, " << seconds_text(computing_step(runs, false)) << " on all cores\n";
}

static void draw_waiting(const std::vector<Waiting>& runs, const std::string& path) {
  BarChart chart{.title = "Time of a training step, batches from a remote store",
                 .bars = {},
                 .parts = {"waiting", "computing"}};
  for (const Waiting& w : runs)
    if (w.place.latency > 0)
      chart.bars.push_back({std::to_string(w.workers) + (w.workers == 1 ? " worker" : " workers"),
                            w.step,
                            seconds_text(w.step),
                            {w.waited, w.step - w.waited}});
  write_file(path, draw(chart));
}

void check_restart(const std::vector<double>& restarted, const std::vector<double>& whole, Report& report) {
  report.check_equal("losses that differ after a restart in mid-epoch", different_losses(restarted, whole),
                     0);
}

void report_waiting(const std::vector<Waiting>& runs, int64_t batch_bytes, const std::string& picture,
                    Report& report) {
  print_waiting(runs);
  if (!picture.empty()) draw_waiting(runs, picture);
  int64_t different = 0, bytes = 0;  // losses that differ; sum of |measured - predicted bytes|
  for (const Waiting& w : runs) {
    different += different_losses(w.last.losses, runs[0].last.losses);
    bytes += std::abs(w.last.peak[Kind::Data] - 2 * batch_bytes) +
             std::abs(w.last.host_peak[Kind::Data] - (2 * w.workers + 1) * batch_bytes);
    if (w.place.latency == 0 || std::isnan(w.last.losses[0]))
      continue;  // NaN: without data a step takes no time
    ReportRow& row = report.row("remote store, one core free, workers: " + std::to_string(w.workers));
    row.ms_per_step = w.step * 1e3;
    row.extra = {{"waiting, ms", w.waited * 1e3}};
    if (w.workers == 4) row.peak = w.last.peak, row.host_peak = w.last.host_peak;
  }
  report.check_equal("losses that differ from the run without workers", different, 0);
  report.check_equal("bytes of batches: measured - predicted", bytes, 0);
  for (const char* place : {"file, one core free", "remote store, one core free"}) {
    double share = 1;  // of waiting, with the best number of workers
    for (const Waiting& w : runs)
      if (w.workers > 0 && w.place.name == place) share = std::min(share, w.waited / w.step);
    report.timing_at_least(std::string("computing / step, best number of workers: ") + place, 1 - share,
                           0.98);
  }
}

}  // namespace gradus
