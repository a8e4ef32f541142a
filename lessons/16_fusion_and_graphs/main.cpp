// Lesson 16, fusion and graphs: operations fused by hand (a), a language-model head in chunks of rows (b, c),
// operations compiled into one kernel (d), a captured training step (e, f).
//
//   make lesson-16                                                          expected last line: PASS
#include <iostream>

#include "lessons/15_flash_attention/compare.h"
#include "lessons/16_fusion_and_graphs/elements.h"
#include "lessons/16_fusion_and_graphs/fused_gpt.h"
#include "lessons/16_fusion_and_graphs/head.h"
#include "lessons/16_fusion_and_graphs/pairs.h"
#include "lessons/16_fusion_and_graphs/ways.h"
#include "src/core/table.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/step_recorder.h"

using namespace gradus;

struct Settings {
  PairSize pairs{.rows = 4096, .channels = 768};
  HeadSize head{.rows = 1024, .channels = 768, .vocab = 50257};
  std::vector<int64_t> at_a_time{0, 64, 256, 512};
  int64_t elements = int64_t(64) << 20, in_cache = int64_t(64) << 10;
  TransformerConfig model{.vocab = 4096, .context = 256, .layers = 4, .heads = 4, .channels = 256};
  int64_t batch = 4;
};

// Smaller sizes for emu, which takes a thousand times as long.
static Settings settings_for(const std::string& device) {
  Settings set;
  if (device != "emu") return set;
  set.pairs.rows = 64, set.elements = 1 << 18, set.in_cache = 1 << 14;
  set.head = {.rows = 64, .channels = 64, .vocab = 1000}, set.at_a_time = {0, 8, 32};
  set.model = {.vocab = 256, .context = 32, .layers = 4, .heads = 2, .channels = 64};
  return set;
}

enum class Way { Calls, FusedByHand, Captured, Compiled };
struct Training {
  std::vector<double> losses;
  int64_t kernels;  // calls per step
  double seconds;   // per step, median
  FusedChains fused;
};

// Trains on `device`. On meta kernels compute nothing, so the time is the host's.
static Training train(const Lesson& lesson, const Settings& set, Way way, RunTimeCompiler* compiler,
                      const std::string& device, ReportRow* row) {
  const LessonContext own(lesson, device, 0);
  TransformerConfig config = set.model;
  config.attention = attention_flash;
  Transformer model(config);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  CapturedStep captured;
  StepRecorder recorder;
  Training training{};
  DummyBatch batch = dummy_batch(config, set.batch, config.context, 1);
  Tensor loss;
  const auto step = [&] {
    loss = {};
    model.parameters.zero_grad();
    Tape tape;
    loss = way == Way::FusedByHand ? fused_loss(model, batch.ids, batch.targets, 256) : batch.loss(model);
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step();
  };
  for (int64_t i = 0; i < lesson.steps; ++i) {
    if (i == 3 && way == Way::Compiled && compiler) training.fused = fuse_chains(captured, *compiler);
    recorder.begin();
    optimizer.set_learning_rate(1e-3);
    if (way == Way::Captured || way == Way::Compiled)
      captured.run({batch.ids, batch.targets}, step);
    else
      step();
    recorder.end(item(loss));
  }
  training.losses = recorder.losses;
  training.kernels = int64_t(captured.calls().size());
  // Steps 0 to 2 warm up and are recorded; they do not count.
  if (lesson.steps > 3)
    training.seconds = summarize({recorder.seconds.begin() + 3, recorder.seconds.end()}).median;
  if (row) recorder.fill(*row, set.batch * config.context);
  return training;
}

// compiler: nullptr if it does not work; `problem` says why.
static void report_steps(const Lesson& lesson, const Settings& set, RunTimeCompiler* compiler,
                         const std::string& problem, Report& report) {
  std::vector<Training> real, on_meta;
  for (const auto& [way, name] : {std::pair(Way::Calls, "op by op"),
                                  {Way::FusedByHand, "fused by hand"},
                                  {Way::Captured, "captured"},
                                  {Way::Compiled, "captured, compiled"}}) {
    real.push_back(train(lesson, set, way, compiler, lesson.device, &report.row(name)));
    on_meta.push_back(train(lesson, set, way, compiler, "meta", nullptr));
  }
  const std::string few = lesson.steps > 3 ? "" : "no replay in fewer than 4 steps";
  const std::string device = current().device.name();
  const bool on_gpu = device == "emu" || device == "cuda";
  if (compiler) report_chains(real[3].fused, *compiler);
  std::cout << "(f) Host time per step, measured on meta, where kernels compute nothing: op by op ("
            << real[2].kernels << " kernel calls) " << seconds_text(on_meta[0].seconds) << ", replay "
            << seconds_text(on_meta[2].seconds) << "\n\n";
  ComparedWays ways{int64_t(real[3].fused.chains.size()), {}, on_meta[0].seconds, on_meta[2].seconds};
  for (const Training& t : real) ways.losses.push_back(t.losses);
  check_ways(ways, on_gpu ? 2 : 3, few, problem, report);
}

static int lesson_16(int argc, char** argv) {
  Lesson lesson(argc, argv, "16_fusion_and_graphs", "fused kernels, the head in chunks, captured steps", 12);
  const std::string folder = lesson.args.text("folder", "build/chains", "folder of compiled chains");
  const std::string command = lesson.args.text(
      "compiler", "", "command and flags that compile chains (default: those of this program)");
  const std::string picture = lesson.plot("16_chain.svg");
  lesson.done({}, {picture});
  if (lesson.print == "example") return elements_by_hand(std::cout), 0;
  const LessonContext context(lesson);
  const Settings set = settings_for(context.device.name());
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("vocabulary", set.model.vocab), report.config("steps", lesson.steps);
  RunTimeCompiler compiler(folder,
                           command.empty() ? RunTimeCompiler::built_with(context.device.name()) : command);
  const std::string problem = context.device.has_data() ? compiler.problem() : "";
  report_pairs(compare_pairs(lesson, set.pairs), set.pairs, report);
  report_heads(run_heads(lesson, set.head, set.at_a_time), set.head, report);
  TransformerConfig gpt2 = transformer_config("gpt2");
  gpt2.attention = attention_flash;
  report_model_peaks(lesson, gpt2, 4, 256, report);
  if (!problem.empty())
    std::cout << problem << "; the lesson goes on without chains\n\n";
  else
    report_elements(run_elements(lesson, set.elements, set.in_cache, compiler), set.elements, set.in_cache,
                    picture, report);
  report_steps(lesson, set, problem.empty() ? &compiler : nullptr, problem, report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_16(argc, argv); });
}
