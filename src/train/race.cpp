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
Spread Result::last_losses() const {
  std::vector<double> losses{best().row.loss_last.value_or(NAN)};
  for (const Trial& t : repeats) losses.push_back(t.row.loss_last.value_or(NAN));
  if (std::any_of(losses.begin(), losses.end(), [](double l) { return std::isnan(l); }))
    return {NAN, NAN, NAN};
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  return {std::accumulate(losses.begin(), losses.end(), 0.0) / double(losses.size()), *least, *most};
}
ReportRow Result::table_row() const {
  ReportRow row = best().row;
  row.name = name;
  for (const std::vector<Trial>* runs : {&trials, &repeats})
    for (const Trial& t : *runs)
      if (t.row.ms_per_step < row.ms_per_step)
        row.ms_per_step = t.row.ms_per_step, row.tokens_per_s = t.row.tokens_per_s;
  return row;
}
bool Result::best_is_inside() const { return &best() != &trials.front() && &best() != &trials.back(); }

const Result& result_of(const std::string& name, const std::vector<Result>& results) {
  return *std::find_if(results.begin(), results.end(), [&](const Result& r) { return r.name == name; });
}

void check_results(const std::vector<Result>& results, int64_t steps, const std::string& not_swept,
                   Report& report) {
  for (const Result& r : results) {
    const ReportRow& row = r.best().row;
    report.check_equal(r.name + ": state bytes", (*row.peak)[Kind::Optimizer], r.best().state_bytes);
    report.check_at_most(r.name + ": last loss; bound: first loss", row.loss_last.value_or(NAN),
                         row.loss_first.value_or(NAN), needs_steps(20, steps));
    report.check_equal(r.name + ": best rate between worse rates (1: yes)", r.best_is_inside(), 1, not_swept);
  }
  const auto last = [&](const char* name) { return result_of(name, results).last_losses(); };
  report.check_at_most("Muon: largest last loss of the seeds; bound: AdamW's smallest", last("Muon").most,
                       last("AdamW").least, not_swept);
}

std::vector<double> smooth(const std::vector<double>& losses) {
  std::vector<double> means(losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto end = losses.begin() + ptrdiff_t(i) + 1,
               begin = end - ptrdiff_t(std::min<size_t>(i + 1, kWindow));
    means[i] = std::accumulate(begin, end, 0.0) / double(end - begin);
  }
  return means;
}

void print_sweep(const std::vector<Result>& results) {
  Table table({"last loss by learning rate", "r/3", "r", "3r", "9r", "rate r", "best rate"});
  for (const Result& r : results) {
    std::vector<std::string> cells{r.name};
    for (const Trial& t : r.trials) cells.push_back(number_text(t.row.loss_last.value_or(NAN)));
    cells.push_back(number_text(r.trials[1].rate));
    cells.push_back(number_text(r.best().rate));
    table.row(cells);
  }
  std::cout << "\n(a) Sweep of learning rates, one seed; r: the column 'rate r'; last loss: mean of the last "
            << kWindow << " steps\n\n"
            << table;
}

static std::vector<double> time_after(const Trial& t) {
  std::vector<double> sums(t.seconds.size());
  std::partial_sum(t.seconds.begin(), t.seconds.end(), sums.begin());
  return sums;
}

void print_race(const std::vector<Result>& results, int64_t parameters) {
  const double goal = smooth(result_of("AdamW", results).best().losses).back();
  Table table({"to reach AdamW's last loss, one seed", "steps", "time", "state bytes per parameter"});
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

void draw_race(const Lesson& lesson, const std::vector<Result>& results, int64_t warmup) {
  const std::string loss = "training loss, nats per byte, mean of " + std::to_string(kWindow) + " steps";
  LinePlot by_step{
      "Loss by step, best learning rates, seed " + std::to_string(lesson.seed), "step", loss, {}, {}},
      by_time{"Loss by time: the same runs", "seconds", loss, {}, {}};
  for (const Result& r : results) {
    const std::vector<double> losses = smooth(r.best().losses);
    std::vector<double> steps(losses.size());
    std::iota(steps.begin(), steps.end(), 1.0);
    by_step.series.push_back({r.name, steps, losses});
    by_time.series.push_back({r.name, time_after(r.best()), losses});
  }
  // Steps that could be mistaken for effects of an optimizer: a vertical line, or a dot on each curve.
  const std::pair<int64_t, const char*> marked[] = {
      {warmup, "end of warm-up"}, {lesson.steps - kWindow, "window of the last loss begins"}};
  for (const auto& [step, what] : marked) {
    if (step < 1) continue;
    const std::string name = "step " + std::to_string(step) + ": " + what;
    Series dots{name, {}, {}, Series::Marks::Dots};
    for (size_t i = 0; i < results.size(); ++i)
      dots.x.push_back(by_time.series[i].x[size_t(step - 1)]),
          dots.y.push_back(by_time.series[i].y[size_t(step - 1)]);
    by_time.series.push_back(dots);
    by_step.series.push_back({name, {double(step), double(step)}, {0, by_step.series[0].y[0]}});
  }
  write_file(lesson.plot("06_steps.svg"), draw(by_step));
  write_file(lesson.plot("06_time.svg"), draw(by_time));
}

}  // namespace gradus
