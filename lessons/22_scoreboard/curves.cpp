#include "lessons/22_scoreboard/curves.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <utility>

#include "kernels/check.h"
#include "src/core/input_file.h"
#include "src/core/json.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"

namespace gradus {

static ExpectedLoss expected_in(const std::string& line) {
  ExpectedLoss e{};
  int64_t fields = 0;
  parse_fields(line, 10, [&](const std::string& name, ParsedJson& value) {
    check(value.is_number(), name, " is ", Brief{value}, "; it must be a number");
    if (name == "step") e.step = whole_number(value);
    for (const auto& [field, x] : {std::pair("mean", &e.mean), {"least", &e.least}, {"most", &e.most}})
      if (name == field) *x = value.get<double>();
    ++fields;
  });
  check(fields == 4, "a line needs the fields step, mean, least and most, and no others");
  return e;
}

std::vector<ExpectedLoss> read_expected(const std::string& path) {
  std::vector<ExpectedLoss> all;
  std::istringstream lines(read_text_file(path));
  for (std::string line; std::getline(lines, line);) {
    try {
      all.push_back(expected_in(line));
    } catch (const Error& e) {
      fail(path, ", line ", all.size() + 1, ": ", e.what());
    }
    check(all.back().step > (all.size() < 2 ? 0 : all[all.size() - 2].step), path, ", line ", all.size(),
          ": its step is not larger than that of the line before");
  }
  check(!all.empty(), path, ": the file is empty; make curves writes such files");
  return all;
}

// The mean of the losses of steps from + 1 to `to`; NaN if a loss is missing. losses[0] is that of step first
// + 1.
static double mean_of(const std::vector<double>& losses, int64_t first, int64_t from, int64_t to) {
  if (from < first || to > first + int64_t(losses.size())) return NAN;
  return std::accumulate(losses.begin() + (from - first), losses.begin() + (to - first), 0.0) /
         double(to - from);
}

template <class F>  // f(expected, own mean), for each interval that the losses cover
static void each_mean(const std::vector<double>& losses, int64_t first,
                      const std::vector<ExpectedLoss>& expected, F f) {
  int64_t from = 0;
  for (const ExpectedLoss& e : expected) {
    const double own = mean_of(losses, first, std::exchange(from, e.step), e.step);
    if (!std::isnan(own)) f(e, own);
  }
}

CurveVerdict compare_curve(const std::vector<double>& losses, int64_t first,
                           const std::vector<ExpectedLoss>& expected) {
  CurveVerdict verdict;
  each_mean(losses, first, expected, [&](const ExpectedLoss& e, double own) {
    const double margin = std::max(e.most - e.least, 0.02 * e.mean);
    ++verdict.compared;
    verdict.outside += own < e.least - margin || own > e.most + margin;
  });
  return verdict;
}

void check_last_loss(double loss, Report& report) {
  report.check_at_most("loss of the last step, not NaN", loss, INFINITY);
}
void check_curve(const CurveVerdict& verdict, int64_t first_end, Report& report) {
  report.check_equal(
      "intervals with a mean loss outside the expected range, of " + std::to_string(verdict.compared),
      verdict.outside, 0,
      verdict.compared > 0 ? "" : "the first interval ends at step " + std::to_string(first_end));
}

void draw_curve(const std::vector<double>& losses, int64_t first, const std::vector<ExpectedLoss>& expected,
                const std::string& path) {
  LinePlot plot{"Mean loss of the run, compared with three seeds", "step", "loss, nats per byte", {}, {}};
  Series least{"smallest of the seeds", {}, {}}, most{"largest of the seeds", {}, {}},
      own{"this run", {}, {}};
  for (const ExpectedLoss& e : expected) {
    least.x.push_back(double(e.step)), least.y.push_back(e.least);
    most.x.push_back(double(e.step)), most.y.push_back(e.most);
  }
  each_mean(losses, first, expected, [&](const ExpectedLoss& e, double mean) {
    own.x.push_back(double(e.step)), own.y.push_back(mean);
  });
  plot.series = {own, least, most};
  write_file(path, draw(plot));
}

}  // namespace gradus
