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

// Compare GFLOP/s: C1 to C6 (C6 only with the library), and C7 unless empty, at each size; G1 to G3.
inline void check_throughput(const std::vector<std::vector<double>>& c, const std::vector<double>& c7,
                             Report& report) {
  const auto least = [](const std::vector<double>& a, const std::vector<double>& b) {  // of n >= 1000
    double ratio = INFINITY;
    for (size_t i = 1; i < a.size(); ++i) ratio = std::min(ratio, a[i] / b[i]);
    return ratio;
  };
  report.timing_at_least("throughput C5 / C1, n = 1024", c[4][3] / c[0][3], 10);
  if (c.size() == 6)
    report.timing_at_least("throughput C5 / C6, smallest ratio at n >= 1000", least(c[4], c[5]), 0.75);
  if (!c7.empty())
    report.timing_at_least("throughput C7 / C5, smallest ratio at n >= 1000", least(c7, c[4]), 1.5);
}
inline void check_gpu_throughput(int64_t n, const std::vector<double>& gflops, Report& report) {
  report.timing_at_least("throughput G3 / G1 on cuda, n = " + std::to_string(n), gflops[2] / gflops[0], 2);
}

}  // namespace gradus
