#include "lessons/01_gemm/cpu_ladder.h"

#include <cmath>
#include <iostream>

#include "kernels/cpu/gemm_tile.h"
#include "lessons/01_gemm/problem.h"
#include "lessons/01_gemm/rungs.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/memory/device_timing.h"

namespace gradus {
namespace {

struct Ladder {
  const Lesson& lesson;
  Report& report;
  std::vector<Problem> problems;
  Table table{{"GFLOP/s at n =", "256", "1000", "1023", "1024", "1536", "2048"}};
  BarChart chart{"C = A B, n = 1024: GFLOP/s", {}};

  Ladder(const Lesson& lesson, Report& report) : lesson(lesson), report(report) {
    for (const int64_t n : {256, 1000, 1023, 1024, 1536, 2048}) problems.emplace_back(n, lesson.seed);
  }

  // A row: the speed at each size. Slow rungs would take minutes at every size.
  template <class Multiply>  // of a problem, into C
  std::vector<double> add(const std::string& name, bool fast, double intensity, const Multiply& multiply) {
    std::vector<std::string> cells{name};
    std::vector<double> speed;
    double worst = 0;
    for (const Problem& p : problems) {
      speed.push_back(NAN);
      cells.emplace_back();
      if (!fast && p.n > 1024) continue;
      std::vector<float> c(p.n * p.n, NAN);
      const auto once = [&] { multiply(p, c.data()); };
      speed.back() = p.gflop() / measure(once, fast ? int(lesson.steps) : 1, 0.01).median;
      cells.back() = number_text(speed.back());
      const double error = p.worst_error(c);
      if (error > worst || std::isnan(error)) worst = error;
    }
    table.row(cells);
    chart.bars.push_back({name, speed[3], number_text(speed[3])});
    report.row(name).extra = {{"GFLOP/s, n = 1024", speed[3]}, {"predicted FLOPs a byte", intensity}};
    report.check_at_most(name + ": error, share of allowed", worst, 1);
    return speed;
  }
};

// The least of n >= 1000.
double least_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  double least = INFINITY;
  for (size_t i = 1; i < a.size(); ++i) least = std::min(least, a[i] / b[i]);
  return least;
}

}  // namespace

void cpu_ladder(const Lesson& lesson, const std::string& picture, Report& report) {
  const LessonContext context(lesson, "cpu", lesson.memory);
  Ladder ladder(lesson, report);
  std::vector<std::vector<double>> gflops;  // of each rung, at each size
  for (const Rung& rung : rungs())
    gflops.push_back(ladder.add(rung.name, rung.fast, rung.intensity(1024), [&](const Problem& p, float* c) {
      rung.multiply(p.n, p.a.data(), p.b.data(), c);
    }));
  // Of A and B 2 bytes a number: B in, its copy out, C out: 8 n^2; and A for each 1024 columns.
  const std::vector<double> in_pairs =
      ladder.add("C7 as C5, from bf16", true, 2.0 * 1024 / (8 + 2.0 * 1024 / 1024),
                 [](const Problem& p, float* c) { pairs(p.n, p.a16.data(), p.b16.data(), c); });
  std::cout << ladder.table;
  if (!cpu::kHasPairs)
    std::cout
        << "This processor has no instruction for products of bf16 numbers: C7 converts them to fp32.\n";
  std::cout << std::endl;
  write_file(picture, draw(ladder.chart));
  std::cout << "the ladder: " << picture << "\n";
  report.timing_at_least("C5 ÷ C1, n = 1024", gflops[4][3] / gflops[0][3], 10);
  if (gflops.size() == 6)  // with the library
    report.timing_at_least("C5 ÷ C6, the least of n >= 1000", least_ratio(gflops[4], gflops[5]), 0.75);
  if (cpu::kHasPairs)
    report.timing_at_least("C7 ÷ C5, the least of n >= 1000", least_ratio(in_pairs, gflops[4]), 1.5);
}

}  // namespace gradus
