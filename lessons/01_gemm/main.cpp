// Lesson 01, matrix products. Nine tenths of training is C = A B. The same 2 n^3 operations run a hundred
// times faster when each number that comes from memory is used more often: arithmetic intensity, FLOPs for
// each byte moved.
//
// Bytes that a product must move: 12 n^2 (A and B in, C out), so intensity can reach n/6.
//
//   make lesson-01                        expected last line: PASS
#include <cmath>
#include <iostream>

#include "lessons/01_gemm/rungs.h"
#include "src/core/rng.h"
#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/io/png.h"
#include "src/train/lesson.h"

using namespace gradus;

struct Result {
  double gflops, worst_error;  // the error as a share of what rounding allows
};

// |error| of a sum of n products, each of size at most 1, is at most n eps (n/3 of it typical products).
static Result run(const Rung& rung, int64_t n, int repeats, const std::vector<float>& a,
                  const std::vector<float>& b, const std::vector<double>& expected) {
  std::vector<float> c(n * n, NAN);
  const Timing time = measure([&] { rung.multiply(n, a.data(), b.data(), c.data()); }, repeats, 0.01);
  Result result{2.0 * double(n) * double(n) * double(n) / time.median * 1e-9, 0};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j : {int64_t(0), n / 2, n - 1}) {
      const double error = std::abs(c[i * n + j] - expected[i * 3 + (j == 0 ? 0 : j == n - 1 ? 2 : 1)]);
      const double share = error / (double(n) * 0x1p-24);
      if (!(share <= result.worst_error)) result.worst_error = share;  // a NaN is kept
    }
  return result;
}

// Three columns of C in fp64: the first, the middle, the last.
static std::vector<double> reference(int64_t n, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> c(n * 3);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t column = 0; column < 3; ++column) {
      const int64_t j = column == 0 ? 0 : column == 2 ? n - 1 : n / 2;
      for (int64_t k = 0; k < n; ++k) c[i * 3 + column] += double(a[i * n + k]) * b[k * n + j];
    }
  return c;
}

static int lesson_01(int argc, char** argv) {
  Lesson lesson(argc, argv, "01_gemm", "the ladder of matrix products: from three loops to a library", 5);
  lesson.args.done();
  check(lesson.device == "auto" || lesson.device == "cpu",
        "01_gemm: the ladder is the CPU's, on --device=", lesson.device, " there is none; use --device=cpu");
  Context context("cpu", lesson.seed, lesson.memory);
  lesson.apply(context);
  Report report = lesson.report();
  report.config("repeats", lesson.steps);
  const std::vector<Rung> ladder = rungs();
  BarChart chart{"C = A B, n = 1024: GFLOP/S", {}};
  double ours_to_library = INFINITY;
  for (const int64_t n : {256, 1000, 1023, 1024, 1536, 2048}) {
    Rng rng(lesson.seed, uint64_t(n));
    std::vector<float> a(n * n), b(n * n);
    for (float& x : a) x = float(2 * rng.uniform() - 1);
    for (float& x : b) x = float(2 * rng.uniform() - 1);
    const std::vector<double> expected = reference(n, a, b);
    Table table({"n = " + std::to_string(n), "GFLOP/s", "FLOPs a byte", "error, share of allowed"});
    double tile = 0;
    for (const Rung& rung : ladder) {
      if (!rung.fast && n != 256 && n != 1024) continue;
      const Result r = run(rung, n, rung.fast ? int(lesson.steps) : 1, a, b, expected);
      table.row(
          {rung.name, number_text(r.gflops), number_text(rung.intensity(n)), number_text(r.worst_error)});
      report.check_at_most(rung.name + ", n = " + std::to_string(n) + ": error, share of allowed",
                           r.worst_error, 1);
      if (n == 1024) chart.bars.push_back({rung.name, r.gflops, number_text(r.gflops)});
      if (rung.name[0] == '4') tile = r.gflops;
      if (rung.name[0] == '5' && n >= 1000) ours_to_library = std::min(ours_to_library, tile / r.gflops);
    }
    std::cout << table << std::endl;
  }
  draw(chart).write_png(lesson.plot("01_gemm.png"));
  std::cout << "the ladder: " << lesson.plot("01_gemm.png") << "\n";
  for (const Bar& bar : chart.bars) report.row(bar.name).extra = {{"GFLOP/s, n = 1024", bar.value}};
  if (std::isfinite(ours_to_library))
    report.timing_at_least("ours ÷ library, worst size", ours_to_library, 0.75);
  report.timing_at_least("tile in registers ÷ naive, n = 1024", chart.bars[3].value / chart.bars[0].value,
                         10);
  return report.finish(lesson.json);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_01(argc, argv); });
}
