#include "src/train/race.h"

#include <iostream>
#include <numeric>

#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"

namespace gradus {

static double last_loss(const Trial& t) {
  const double loss = t.row.loss_last.value_or(NAN);
  return std::isnan(loss) ? INFINITY : loss;
}
const Trial& Result::best() const {
  return *std::min_element(trials.begin(), trials.end(),
                           [](const Trial& a, const Trial& b) { return last_loss(a) < last_loss(b); });
}
bool Result::best_is_inside() const { return &best() != &trials.front() && &best() != &trials.back(); }

const Result& result_of(const std::string& name, const std::vector<Result>& results) {
  return *std::find_if(results.begin(), results.end(), [&](const Result& r) { return r.name == name; });
}

void check_results(const std::vector<Result>& results, int64_t steps, const std::string& not_swept,
                   Report& report) {
  for (const Result& r : results) {
    const ReportRow& row = r.best().row;
    report.check_equal(r.name + ": bytes of its states", (*row.peak)[Kind::Optimizer], r.best().state_bytes);
    report.check_at_most(r.name + ": its loss fell", row.loss_last.value_or(NAN),
                         row.loss_first.value_or(NAN), needs_steps(20, steps));
    report.check_equal(r.name + ": best rate is inside its sweep", r.best_is_inside(), 1, not_swept);
  }
  const auto last = [&](const char* name) {
    return result_of(name, results).best().row.loss_last.value_or(NAN);
  };
  report.check_at_most("Muon: its last loss, beside AdamW's", last("Muon"), last("AdamW"), not_swept);
}

std::vector<double> smooth(const std::vector<double>& losses) {
  std::vector<double> means(losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto end = losses.begin() + ptrdiff_t(i) + 1, begin = end - ptrdiff_t(std::min<size_t>(i + 1, 20));
    means[i] = std::accumulate(begin, end, 0.0) / double(end - begin);
  }
  return means;
}

void print_sweep(const std::vector<Result>& results) {
  Table table({"last loss at the rate", "r/9", "r/3", "r", "3r", "9r", "r =", "best"});
  for (const Result& r : results) {
    std::vector<std::string> cells{r.name};
    for (const Trial& t : r.trials) cells.push_back(number_text(t.row.loss_last.value_or(NAN)));
    cells.push_back(number_text(r.trials[2].rate));
    cells.push_back(number_text(r.best().rate));
    table.row(cells);
  }
  std::cout << "\n(a) Five learning rates for each\n\n" << table;
}

static std::vector<double> time_after(const Trial& t) {
  std::vector<double> sums(t.seconds.size());
  std::partial_sum(t.seconds.begin(), t.seconds.end(), sums.begin());
  return sums;
}

void print_race(const std::vector<Result>& results, int64_t parameters) {
  const double goal = smooth(result_of("AdamW", results).best().losses).back();
  Table table({"to where AdamW ends", "steps", "time", "state bytes a parameter"});
  for (const Result& r : results) {
    const Trial& t = r.best();
    const std::vector<double> losses = smooth(t.losses);
    const auto there = std::find_if(losses.begin(), losses.end(), [&](double l) { return l <= goal; });
    const bool arrived = there != losses.end();
    table.row({r.name, arrived ? std::to_string(there - losses.begin() + 1) : "not reached",
               arrived ? seconds_text(time_after(t)[size_t(there - losses.begin())]) : "",
               number_text(double((*t.row.peak)[Kind::Optimizer]) / double(parameters))});
  }
  std::cout << "\n" << table;
}

void draw_race(const Lesson& lesson, const std::vector<Result>& results) {
  LinePlot by_step{"Loss against steps, each at its best rate", "step", "nats per byte", {}, {}};
  LinePlot by_time{"Loss against time, each at its best rate", "seconds", "nats per byte", {}, {}};
  for (const Result& r : results) {
    const std::vector<double> losses = smooth(r.best().losses);
    std::vector<double> steps(losses.size());
    std::iota(steps.begin(), steps.end(), 1.0);
    by_step.series.push_back({r.name, steps, losses});
    by_time.series.push_back({r.name, time_after(r.best()), losses});
  }
  write_file(lesson.plot("06_steps.svg"), draw(by_step));
  write_file(lesson.plot("06_time.svg"), draw(by_time));
}

}  // namespace gradus
