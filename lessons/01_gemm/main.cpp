// Lesson 01, matrix products. Training spends most of its time in products C = A B. The same 2 n^3 operations
// run a hundred times faster if each number that comes from memory is used more often. Arithmetic intensity,
// FLOPs per byte moved, measures this.
//
// A product moves at least 12 n^2 bytes (A and B in, C out), so its intensity is at most n/6. A product with
// tiles of t x t elements of C reads 2 n^3 / t numbers, which gives t/4 FLOPs per byte.
//
//   make lesson-01                        expected last line: PASS
#include <iostream>

#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/parallel.h"
#include "lessons/01_gemm/by_hand.h"
#include "lessons/01_gemm/cpu_ladder.h"
#include "lessons/01_gemm/gpu_rungs.h"
#include "lessons/01_gemm/rungs.h"
#include "src/io/atomic_file.h"
#include "src/tensor/tensor.h"

using namespace gradus;

// The matrices of a problem on the current device.
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

// A row with the predicted and the counted traffic; on meta, which counts nothing, with the prediction alone.
static void traffic_row(Report& report, const std::string& name, double flops, const emu::Traffic& predicted,
                        const emu::Traffic* counted) {
  ReportRow& row = report.row(name);
  row.extra = {{"predicted FLOPs/byte", flops / double(predicted.bytes())}};
  if (counted) row.extra.emplace_back("counted FLOPs/byte", flops / double(counted->bytes()));
  const emu::Traffic& traffic = counted ? *counted : predicted;
  row.extra.emplace_back("sectors per warp load", traffic.sectors_per_load());
  if (traffic.shared_loads)
    row.extra.emplace_back("FMAs per shared load", flops / 2 / double(traffic.shared_loads));
}

// The CPU's rungs: GFLOP/s at several sizes, as a table and as a picture.
static void cpu_ladder(const Lesson& lesson, const std::string& picture, Report& report) {
  const LessonContext context(lesson, "cpu", lesson.memory);
  CpuLadder ladder(lesson, report);
  std::vector<std::vector<double>> gflops;  // of each rung, at each size
  for (const Rung& rung : rungs())
    gflops.push_back(ladder.add(rung.name, rung.fast, rung.intensity(1024), [&](const Problem& p, float* c) {
      rung.multiply(p.n, p.a.data(), p.b.data(), c);
    }));
  // A and B have 2 bytes per number. B is read, its packed copy and C are written: 8 n^2 bytes. A is read
  // once per 1024 columns of B.
  const std::vector<double> in_pairs =
      ladder.add("C7 as C5, bf16 inputs", true, 2.0 * 1024 / (8 + 2.0 * 1024 / 1024),
                 [](const Problem& p, float* c) { pairs(p.n, p.a16.data(), p.b16.data(), c); });
  const char* instructions[] = {"none, so C7 converts to fp32", "AVX-512-BF16", "AMX"};
  report.config("bf16 instructions", instructions[int(cpu::kPairUnit)]);
  std::cout
      << "CPU rungs C1 to C7 (empty: too slow). G1 to G4, below, are GPU kernels; emu simulates a GPU.\n"
      << ladder.table;
  std::cout << std::endl;
  write_file(picture, draw(ladder.chart));
  std::cout << "bar chart: " << picture << "\n";
  check_throughput(gflops, cpu::kHasPairs ? in_pairs : std::vector<double>(), report);
}

// The GPU's rungs on emu: counts their memory traffic, and compares it with the prediction.
static void count_gpu_ladder(const Lesson& lesson, Report& report) {
  const LessonContext context(lesson, "emu", lesson.memory);
  const Problem problem(256, lesson.seed);
  OnDevice on_emu(problem);
  for (const GpuRung& rung : emu::gpu_rungs()) {
    emu::reset_traffic();
    on_emu.multiply(rung);
    const emu::Traffic counted = emu::traffic(),
                       predicted = rung.predicted({problem.n, problem.n, problem.n});
    const std::string name = rung.name + " on emu, n = " + std::to_string(problem.n);
    traffic_row(report, name, problem.gflop() * 1e9, predicted, &counted);
    check_errors(name, {on_emu.worst_error()}, report);
    check_traffic(name, counted, predicted, report);
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
      check_errors(name, {on_gpu.worst_error()}, report);
    }
    check_gpu_throughput(n, gflops, report);
  }
#endif
}

static int lesson_01(int argc, char** argv) {
  Lesson lesson(argc, argv, "01_gemm",
                "throughput and memory traffic of matrix products, from three loops to a library", 5);
  // With --device=auto all rungs that this machine can run, otherwise those of the device. On meta: the
  // predictions.
  const bool all = lesson.device == "auto";
  lesson.done({}, {all || lesson.device == "cpu" ? lesson.plot("01_gemm.svg") : ""});
  if (lesson.print == "example") return product_by_hand(std::cout), 0;
  LessonContext context(lesson);
  Report report = lesson.report();
  report.config("runs per timing", lesson.steps);
  report.config("threads", int64_t(cpu::thread_count()));
  const std::string on = context.device.name();
  if (all || on == "cpu") cpu_ladder(lesson, lesson.plot("01_gemm.svg"), report);
  if (all || on == "emu") count_gpu_ladder(lesson, report);
  if (on == "cuda") time_gpu_ladder(lesson, report);
  if (on == "meta")
    for (const GpuRung& rung : emu::gpu_rungs())
      traffic_row(report, rung.name, 2.0 * 4096 * 4096 * 4096, rung.predicted({4096, 4096, 4096}), nullptr);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_01(argc, argv); });
}
