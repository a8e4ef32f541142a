// The CPU's rungs: a row each, its GFLOP/s at several sizes, and whether its products are right.
#pragma once
#include <string>
#include <vector>

#include "lessons/01_gemm/problem.h"
#include "src/core/table.h"
#include "src/io/plot.h"
#include "src/memory/device_timing.h"
#include "src/train/lesson.h"

namespace gradus {

struct CpuLadder {
  const Lesson& lesson;
  Report& report;
  std::vector<Problem> problems;
  Table table{{"GFLOP/s at n =", "256", "1000", "1023", "1024", "1536", "2048"}};
  BarChart chart{"C = A B, n = 1024: GFLOP/s", {}};

  CpuLadder(const Lesson& lesson, Report& report) : lesson(lesson), report(report) {
    for (const int64_t n : {256, 1000, 1023, 1024, 1536, 2048}) problems.emplace_back(n, lesson.seed);
  }

  // A row: the speed at each size. Slow rungs would take minutes at every size.
  template <class Multiply>  // of a problem, into C
  std::vector<double> add(const std::string& name, bool fast, double intensity, const Multiply& multiply) {
    std::vector<std::string> cells{name};
    std::vector<double> speed, errors;
    for (const Problem& p : problems) {
      speed.push_back(NAN);
      cells.emplace_back();
      if (!fast && p.n > 1024) continue;
      std::vector<float> c(p.n * p.n, NAN);
      const auto once = [&] { multiply(p, c.data()); };
      speed.back() = p.gflop() / measure(once, fast ? int(lesson.steps) : 1, 0.01).median;
      cells.back() = number_text(speed.back());
      errors.push_back(p.worst_error(c));
    }
    table.row(cells);
    chart.bars.push_back({name, speed[3], number_text(speed[3])});
    report.row(name).extra = {{"GFLOP/s, n = 1024", speed[3]}, {"predicted FLOPs a byte", intensity}};
    check_errors(name, errors, report);
    return speed;
  }
};

// The least of n >= 1000.
inline double least_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  double least = INFINITY;
  for (size_t i = 1; i < a.size(); ++i) least = std::min(least, a[i] / b[i]);
  return least;
}

}  // namespace gradus
