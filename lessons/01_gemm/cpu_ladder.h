// The CPU's rungs: for each a row with its GFLOP/s at several sizes, and a check of its products.
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
  BarChart chart{"Matrix product C = A B, n = 1024: GFLOP/s", {}};

  CpuLadder(const Lesson& lesson, Report& report) : lesson(lesson), report(report) {
    for (const int64_t n : {256, 1000, 1023, 1024, 1536, 2048}) problems.emplace_back(n, lesson.seed);
  }

  // Adds a row with the GFLOP/s at each size. Slow rungs are measured only up to n = 1024, because larger
  // sizes would take minutes. multiply(problem, c) computes the problem's product into c.
  template <class Multiply>
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
    report.row(name).extra = {{"GFLOP/s, n = 1024", speed[3]}, {"predicted FLOPs/byte", intensity}};
    check_errors(name, errors, report);
    return speed;
  }
};

// The smallest ratio a / b of the sizes n >= 1000.
inline double least_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  double least = INFINITY;
  for (size_t i = 1; i < a.size(); ++i) least = std::min(least, a[i] / b[i]);
  return least;
}

}  // namespace gradus
