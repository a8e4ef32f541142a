#include "lessons/14_data_loading/waiting.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"

namespace gradus {

namespace {

// While it lives, kernels of the CPU leave a core to others, if there are two.
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

std::string name_of(const Waiting& w) {
  return std::to_string(w.workers) + (w.workers == 1 ? " worker" : " workers");
}

}  // namespace

int64_t different_losses(const std::vector<double>& a, const std::vector<double>& b) {
  int64_t different = 0;
  for (size_t i = 0; i < b.size(); ++i) different += a[i] != b[i] && !std::isnan(a[i]);
  return different;
}

std::vector<Waiting> measure_waiting(const LoadedLoop& loop, int64_t rounds) {
  std::vector<Waiting> runs;
  for (const bool core : {false, true})
    for (const int64_t workers : {0, 1, 2, 4}) runs.push_back({workers, core, {}});
  std::vector<std::vector<double>> seconds(runs.size()), waited(runs.size());
  for (int64_t round = 0; round < rounds; ++round)
    for (size_t i = 0; i < runs.size(); ++i) {
      const LeaveACore leave(runs[i].core_for_workers);
      const LoadedRun run = loop(runs[i].workers, kNoRestart);
      const ptrdiff_t warm_up = std::min<ptrdiff_t>(2, ptrdiff_t(run.seconds.size()) - 1);
      seconds[i].insert(seconds[i].end(), run.seconds.begin() + warm_up, run.seconds.end());
      waited[i].insert(waited[i].end(), run.waited.begin() + warm_up, run.waited.end());
      runs[i].losses = run.losses;
    }
  for (size_t i = 0; i < runs.size(); ++i)
    runs[i].step = summarize(seconds[i]).median, runs[i].waited = summarize(waited[i]).median;
  return runs;
}

static void print_waiting(const std::vector<Waiting>& runs) {
  Table table({"", "all cores compute: step", "waiting", "share", "one is left: step", "waiting", "share"});
  const size_t half = runs.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const Waiting &all = runs[i], &left = runs[half + i];
    table.row({name_of(all), seconds_text(all.step), seconds_text(all.waited),
               percent_text(all.waited / all.step), seconds_text(left.step), seconds_text(left.waited),
               percent_text(left.waited / left.step)});
  }
  std::cout << "\n(b) How long a step waits for its batch\n\n" << table;
}

static void draw_waiting(const std::vector<Waiting>& runs, const std::string& path) {
  BarChart chart{
      .title = "A training step, one core left to the workers", .bars = {}, .parts = {"waiting", "the rest"}};
  for (const Waiting& w : runs)
    if (w.core_for_workers)
      chart.bars.push_back({name_of(w), w.step, seconds_text(w.step), {w.waited, w.step - w.waited}});
  write_file(path, draw(chart));
}

void report_waiting(const std::vector<Waiting>& runs, const std::string& picture, Report& report) {
  print_waiting(runs);
  if (!picture.empty()) draw_waiting(runs, picture);
  int64_t different = 0;
  double waits = INFINITY;  // share of a step, with the number of workers that suits best
  for (const Waiting& w : runs) {
    different += different_losses(w.losses, runs[0].losses);
    if (!w.core_for_workers) continue;
    ReportRow& row = report.row(name_of(w) + ", one core left");
    row.ms_per_step = w.step * 1e3;
    row.extra = {{"waiting ms", w.waited * 1e3}};
    if (w.workers > 0) waits = std::min(waits, w.waited / w.step);
  }
  report.check_equal("losses that the number of workers changes", different, 0);
  report.timing_at_least("share of a step that does not wait, one core left", 1 - waits, 0.98);
}

}  // namespace gradus
