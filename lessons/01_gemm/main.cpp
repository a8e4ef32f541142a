// Lesson 01, matrix products. Nine tenths of training is C = A B. The same 2 n^3 operations run a hundred
// times faster when each number that comes from memory is used more often: arithmetic intensity, FLOPs for
// each byte moved.
//
// Bytes that a product must move: 12 n^2 (A and B in, C out), so intensity can reach n/6. With tiles of t x t
// elements of C, 2 n^3 / t numbers are read: t/4 FLOPs a byte.
//
//   make lesson-01                        expected last line: PASS
#include <iostream>

#include "lessons/01_gemm/by_hand.h"
#include "lessons/01_gemm/cpu_ladder.h"
#include "lessons/01_gemm/gpu_rungs.h"
#include "lessons/01_gemm/problem.h"
#include "src/memory/device_timing.h"
#include "src/tensor/tensor.h"
#include "src/train/lesson.h"

using namespace gradus;

// A problem on the current device.
struct OnDevice {
  explicit OnDevice(const Problem& p)
      : problem(p),
        a(from_host(current().device, p.a, {p.n, p.n}, DType::F32, Kind::Data, "A")),
        b(from_host(current().device, p.b, {p.n, p.n}, DType::F32, Kind::Data, "B")),
        c(current().device, {p.n, p.n}, DType::F32, Kind::Data, "C") {}
  void multiply(const GpuRung& rung) {
    const int64_t n = problem.n;
    rung.multiply(current().device.ctx(), {n, n, n}, a.in().as<float>(), b.in().as<float>(),
                  c.set().as<float>());
  }
  double worst_error() const { return problem.worst_error(to_host<float>(c)); }

  const Problem& problem;
  Tensor a, b, c;
};

static void traffic_row(Report& report, const std::string& name, double flops, const Traffic& traffic) {
  ReportRow& row = report.row(name);
  row.extra = {{"counted FLOPs a byte", flops / double(traffic.bytes())},
               {"sectors a load", traffic.sectors_per_load()}};
  if (traffic.shared_loads)
    row.extra.emplace_back("FMAs a shared load", flops / 2 / double(traffic.shared_loads));
}

// The GPU's rungs on emu: their memory traffic, counted, is the predicted one.
static void count_gpu_ladder(const Lesson& lesson, Report& report) {
  const LessonContext context(lesson, "emu", lesson.memory);
  const Problem problem(256, lesson.seed);
  OnDevice on_emu(problem);
  for (const GpuRung& rung : emu::gpu_rungs()) {
    emu::reset_traffic();
    on_emu.multiply(rung);
    const Traffic counted = emu::traffic(), predicted = rung.predicted({problem.n, problem.n, problem.n});
    const std::string name = rung.name + " on emu, n = " + std::to_string(problem.n);
    traffic_row(report, name, problem.gflop() * 1e9, counted);
    report.check_at_most(name + ": error, share of allowed", on_emu.worst_error(), 1);
    report.check_equal(name + ": bytes", counted.bytes(), predicted.bytes());
    report.check_equal(name + ": loads by warps", counted.loads.requests, predicted.loads.requests);
    report.check_equal(name + ": shared loads", counted.shared_loads, predicted.shared_loads);
  }
}

// The GPU's rungs on a GPU: GFLOP/s.
static void time_gpu_ladder([[maybe_unused]] const Lesson& lesson, [[maybe_unused]] Report& report) {
#ifdef GRADUS_CUDA
  LessonContext context(lesson, "cuda", lesson.memory);
  for (const int64_t n : {1024, 4096}) {
    const Problem problem(n, lesson.seed);
    OnDevice on_gpu(problem);
    std::vector<double> gflops;
    for (const GpuRung& rung : cuda::gpu_rungs()) {
      const auto multiply = [&] { on_gpu.multiply(rung); };
      gflops.push_back(problem.gflop() / measure(context.device, multiply, int(lesson.steps)).median);
      const std::string name = rung.name + " on cuda, n = " + std::to_string(n);
      report.row(name).extra = {{"GFLOP/s", gflops.back()}};
      report.check_at_most(name + ": error, share of allowed", on_gpu.worst_error(), 1);
    }
    report.timing_at_least("tile in registers ÷ global memory, n = " + std::to_string(n),
                           gflops[2] / gflops[0], 2);
  }
#endif
}

static int lesson_01(int argc, char** argv) {
  Lesson lesson(argc, argv, "01_gemm", "the ladder of matrix products: from three loops to a library", 5);
  // All that this machine can do, or what runs on the device that was asked for. On meta: the predictions.
  const bool all = lesson.device == "auto";
  lesson.done({}, {all || lesson.device == "cpu" ? lesson.plot("01_gemm.svg") : ""});
  if (lesson.print == "example") return product_by_hand(std::cout), 0;
  LessonContext context(lesson);
  Report report = lesson.report();
  report.config("repeats", lesson.steps);
  const std::string on = context.device.name();
  if (all || on == "cpu") cpu_ladder(lesson, lesson.plot("01_gemm.svg"), report);
  if (all || on == "emu") count_gpu_ladder(lesson, report);
  if (on == "cuda") time_gpu_ladder(lesson, report);
  if (on == "meta")
    for (const GpuRung& rung : emu::gpu_rungs())
      traffic_row(report, rung.name, 2.0 * 4096 * 4096 * 4096, rung.predicted({4096, 4096, 4096}));
  return report.finish(lesson.json);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_01(argc, argv); });
}
