#include "lessons/16_fusion_and_graphs/elements.h"

#include <iostream>

#include "lessons/15_flash_attention/compare.h"
#include "lessons/16_fusion_and_graphs/head.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/memory/device_timing.h"
#include "src/optim/optimizer.h"

namespace gradus {

static ElementOps multiplications(int64_t count) {
  return {std::to_string(count) + " multiplications", count, [count](Tensor x) {
            for (int64_t i = 0; i < count; ++i) x = scale(x, i % 2 == 0 ? 0.5 : 2.0);
            return x;
          }};
}
static ElementOps with_gelu() {
  return {"2 multiplications, gelu", 3, [](const Tensor& x) { return scale(gelu(scale(x, 0.5)), 2.0); }};
}

// The operations as a captured step. A captured step must contain an update, so a model of one parameter is
// updated, too.
class ElementStep {
 public:
  ElementStep(const ElementOps& ops, const Tensor& x) : ops_(ops.ops), x_(x) {
    if (x.device().has_data()) copy_from_host(parameters_.begin()->value, {1});
    for (int warm_up = 0; warm_up < 3; ++warm_up) run();
  }
  void run() {
    sgd_.set_learning_rate(0);
    captured.run({x_}, [&] {
      y = {};
      y = ops_(x_);
      Tape tape;
      tape.backward(scale(parameters_.begin()->value, 0));
      sgd_.step();
    });
  }
  Tensor y;
  CapturedStep captured;

 private:
  std::function<Tensor(Tensor)> ops_;
  Tensor x_;
  Parameters parameters_ = one_number();
  Sgd sgd_{parameters_};
  static Parameters one_number() {
    Parameters p;
    p.add("one", {1}, Precision{});
    return p;
  }
};

static ElementRun run_ops(const ElementOps& ops, const Tensor& x, const Tensor& in_cache,
                          RunTimeCompiler& compiler) {
  Device& device = x.device();
  ElementStep separate(ops, x), chain(ops, x), small(ops, in_cache);
  const FusedChains fused = fuse_chains(chain.captured, compiler);
  fuse_chains(small.captured, compiler);
  ElementRun run{ops.name, ops.count, fused.bytes_before, fused.bytes_after};
  if (!device.has_data()) return run;
  std::vector<double> seconds[2];
  for (int i = 0; i < 5; ++i)
    for (const bool of_chain : {false, true}) {
      const double start = seconds_now(device);
      (of_chain ? chain : separate).run();
      seconds[of_chain].push_back(seconds_now(device) - start);
    }
  run.separate = summarize(seconds[0]).median, run.chain = summarize(seconds[1]).median;
  const double often = double(x.numel()) / double(in_cache.numel());
  run.in_cache = often * measure(device, [&] { small.run(); }).median;
  run.equal = to_host<float>(separate.y) == to_host<float>(chain.y);
  return run;
}

std::vector<ElementRun> run_elements(const Lesson& lesson, int64_t n, int64_t in_cache,
                                     RunTimeCompiler& compiler) {
  const LessonContext own(lesson);
  const Tensor x = random_tensor({n}, 1, lesson.seed), small = random_tensor({in_cache}, 1, lesson.seed);
  std::vector<ElementRun> runs;
  std::vector<ElementOps> all{with_gelu()};
  for (const int64_t count : {10, 6, 4, 2}) all.insert(all.begin(), multiplications(count));
  for (const ElementOps& ops : all) {
    runs.push_back(run_ops(ops, x, small, compiler));
    current().device.allocator().empty_cache();  // frees the memory of the captured steps
  }
  return runs;
}

void report_elements(const std::vector<ElementRun>& runs, int64_t n, int64_t in_cache,
                     const std::string& picture, Report& report) {
  std::cout << "(d) Bytes moved and time of elementwise operations on " << bytes_text(n * size_of(DType::F32))
            << " in fp32, separate and as one chain; in the cache: the same on 1/" << n / in_cache
            << " of the numbers, " << n / in_cache << " times\n\n";
  Table table({"operations", "moved, separate", "moved, fused", "time, separate", "time, fused",
               "time, fused, in the cache"});
  Series separate{"separate kernels", {}, {}, Series::Marks::LineAndDots}, chain = separate;
  chain.name = "one fused chain";
  bool equal = true;
  for (const ElementRun& run : runs) {
    table.row({run.name, bytes_text(run.moved_separate), bytes_text(run.moved_chain), time_text(run.separate),
               time_text(run.chain), time_text(run.in_cache)});
    equal = equal && run.equal;
    if (&run == &runs.back()) continue;
    for (Series* series : {&separate, &chain}) series->x.push_back(double(run.count));
    separate.y.push_back(1e3 * run.separate), chain.y.push_back(1e3 * run.chain);
  }
  std::cout << table << std::endl;
  const ElementRun &ten = runs[runs.size() - 2], &gelus = runs.back();
  report.check_equal("(d) " + ten.name + ": bytes moved, separate - fused",
                     ten.moved_separate - ten.moved_chain, 2 * n * size_of(DType::F32) * (ten.count - 1));
  if (std::isnan(ten.separate)) return;
  report.check_equal("(d) fused results that differ bitwise", equal ? 0 : 1, 0);
  report.timing_at_least("(d) " + ten.name + ": time, separate / fused", ten.separate / ten.chain, 8);
  // Two lower bounds of the time: the time in the cache (arithmetic), and the time of one pass over memory.
  report.timing_at_least(
      "(d) " + gelus.name + ": max(time of one pass over memory, time in the cache) / time",
      std::max(gelus.in_cache, runs.front().chain) / gelus.chain, 0.8);
  LinePlot plot{"Time of elementwise operations on " + bytes_text(n * size_of(DType::F32)) + " in fp32",
                "number of operations",
                "time, ms",
                {separate, chain},
                {}};
  if (!picture.empty()) write_file(picture, draw(plot));
}

void report_chains(const FusedChains& fused, const RunTimeCompiler& compiler) {
  std::cout << "(e) Kernel calls of a training step: " << fused.calls_before << " calls move "
            << bytes_text(fused.bytes_before) << "; with fused chains, " << fused.calls_after
            << " calls move " << bytes_text(fused.bytes_after) << "\n\n";
  Table table({"fused chain", "calls per step"});
  for (const auto& [name, count] : fused.chains) table.row({name, std::to_string(count)});
  std::cout << table << "\n";
  std::cout << "chains of (d) and (e) compiled: " << compiler.compiled()
            << "; loaded from the folder of compiled chains: " << compiler.from_folder() << "\n";
  if (compiler.other_version())
    std::cout << "the folder also has chains of a different version; they are not used\n";
  std::cout << std::endl;
}

void elements_by_hand(std::ostream& out) {
  const Context meta("meta");
  const ElementOps ops = with_gelu();
  ElementStep step(ops, random_tensor({8}, 1, 1));
  Table table({"call", "numbers loaded and stored"});
  int64_t all = 0;
  for (const CapturedStep::Recorded& recorded : step.captured.calls()) {
    const CallArguments arguments = recorded.call->described();
    if (arguments.rows.rows * arguments.rows.cols != 8) continue;
    const int64_t numbers = recorded.call->cost.bytes / size_of(DType::F32);
    table.row({recorded.call->entry, std::to_string(numbers)});
    all += numbers;
  }
  RunTimeCompiler unused("build/chains", RunTimeCompiler::built_with("cpu"));
  const FusedChains fused = fuse_chains(step.captured, unused);
  const auto& [name, code] = *fused.code.begin();
  table.row({name, std::to_string(all - (fused.bytes_before - fused.bytes_after) / size_of(DType::F32))});
  out << table;
  const size_t begin = code.find("    for (int64_t c ="), end = code.find("    }\n", begin);
  out << "\n" << code.substr(begin, end + 6 - begin);
}

}  // namespace gradus
