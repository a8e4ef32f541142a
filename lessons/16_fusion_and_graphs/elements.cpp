#include "lessons/16_fusion_and_graphs/elements.h"

#include <iostream>

#include "lessons/16_fusion_and_graphs/head.h"
#include "src/core/table.h"
#include "src/memory/device_timing.h"
#include "src/optim/optimizer.h"

namespace gradus {

std::vector<ElementOps> element_ops() {
  return {{"ten cheap ones",
           [](Tensor x) {
             for (int i = 0; i < 5; ++i) {
               x = scale(x, 0.5);
               x = add(x, x);
             }
             return x;
           }},
          {"three, one a gelu", [](const Tensor& x) { return scale(gelu(scale(x, 0.5)), 2.0); }}};
}

// A step is one only with an update, so a model of a single number makes one beside the ops.
struct ElementStep {
  ElementStep(const ElementOps& ops, int64_t n, uint64_t seed)
      : ops(ops), x(random_tensor({n}, 1, seed)), one(parameters.add("one", {1}, {})), sgd(parameters) {
    if (x.device().has_data()) copy_from_host(one.value, {1});
    sgd.set_learning_rate(0);
  }
  void run() {
    captured.run({x}, [&] {
      y = {};
      y = ops.ops(x);
      Tape tape;
      tape.backward(scale(one.value, 0));
      sgd.step();
    });
  }
  const ElementOps& ops;
  Tensor x, y;
  Parameters parameters;
  Parameter& one;
  Sgd sgd;
  CapturedStep captured;
};

ElementRun run_elements(const Lesson& lesson, const ElementOps& ops, int64_t n, int64_t in_cache,
                        RunTimeCompiler& compiler) {
  const LessonContext own(lesson);
  Device& device = current().device;
  ElementRun run;
  run.name = ops.name;
  ElementStep apart(ops, n, lesson.seed), chain(ops, n, lesson.seed), small(ops, in_cache, lesson.seed);
  for (ElementStep* step : {&apart, &chain, &small})
    for (int i = 0; i < 3; ++i) step->run();
  const FusedChains fused = fuse_chains(chain.captured, compiler);
  fuse_chains(small.captured, compiler);
  check(fused.chains.size() == 1, "elements: the ops became ", fused.chains.size(), " chains");
  run.code = fused.code.begin()->second;
  run.moved_apart = fused.bytes_before, run.moved_chain = fused.bytes_after;
  if (!device.has_data()) return run;
  std::vector<double> seconds[2];
  for (int i = 0; i < 5; ++i)
    for (const bool of_chain : {false, true}) {
      const double start = seconds_now(device);
      (of_chain ? chain : apart).run();
      seconds[of_chain].push_back(seconds_now(device) - start);
    }
  run.apart = summarize(seconds[0]).median, run.chain = summarize(seconds[1]).median;
  run.in_cache = measure(device, [&] { small.run(); }).median * double(n) / double(in_cache);
  run.equal = to_host<double>(apart.y) == to_host<double>(chain.y);
  return run;
}

void report_elements(const std::vector<ElementRun>& runs, int64_t n, Report& report) {
  std::cout << "(d) Operations on each of " << n << " numbers (" << bytes_text(n * size_of(DType::F32))
            << "), one after the other and compiled as a chain\n\n";
  Table table({"operations", "moved", "chain", "time", "chain", "of it in cache"});
  for (const ElementRun& run : runs) {
    table.row({run.name, bytes_text(run.moved_apart), bytes_text(run.moved_chain), time_text(run.apart),
               time_text(run.chain), time_text(run.in_cache)});
    if (std::isnan(run.apart)) continue;
    report.check_equal(run.name + ": the chain's result is equal to the bit", run.equal, true);
    const bool cheap = &run == &runs.front();
    report.timing_at_least(
        run.name + (cheap ? ": time ÷ of the chain" : ": time in the cache ÷ of the chain"),
        (cheap ? run.apart : run.in_cache) / run.chain, cheap ? 8 : 0.8);
  }
  std::cout << table << std::endl;
}

}  // namespace gradus
