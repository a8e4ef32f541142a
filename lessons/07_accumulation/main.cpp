// Lesson 07, gradient accumulation. A batch that does not fit is worked through in micro-batches, whose
// gradients are added; then comes one update. The gradient is that of the whole batch, the activations are
// those of one micro-batch.
//
// Memory of the activations: 4 b T (L (16 C + H T + 4) + 2 C + V + 3) bytes, b sequences a micro-batch.
//
//   make lesson-07                                                          expected last line: PASS
#include <iostream>
#include <optional>

#include "lessons/07_accumulation/by_hand.h"
#include "lessons/07_accumulation/mistakes.h"
#include "lessons/07_accumulation/ways.h"
#include "lessons/published/runs.h"
#include "src/io/memory_files.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"
#include "src/train/text.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{.vocab = ByteTokenizer::kVocabulary,
                          .context = 64,
                          .layers = 4,
                          .heads = 4,
                          .channels = 128,
                          .dropout = 0.1};
  int64_t batch = 16, text_bytes = 300'000;
};
static Settings for_emulation() {
  Settings set{.text_bytes = 60'000};
  set.model.context = 8, set.model.layers = 1, set.model.channels = 16;
  return set;
}

// Steps with one way to split the batch; the same data, masks and first weights for all ways.
static Run train(const Lesson& lesson, const Settings& set, const Loader& loader, const Way& way) {
  Device& device = current().device;
  Transformer model(set.model);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  Run run;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    const TextBatch batch = read_batch(loader, step, set.batch, set.model.context, way.ragged);
    device.meter().reset_totals();
    if (step == lesson.steps - 1 && !way.picture.empty()) device.allocator().keep_history();
    if (step == 0 && lesson.print == "tape" && way.split.size() == 1 && !way.ragged)
      print_tape(std::cout, model, batch);
    run.recorder.begin();
    model.parameters.zero_grad();                    // once a batch, not once a micro-batch
    run.last = accumulate(model, batch, way.split);  // adds gradients
    if (step == 0)
      for (const Parameter& p : model.parameters) run.first_gradient.push_back(to_host<double>(p.leaf.grad));
    optimizer.clip_grad_norm(1.0);  // the sum, not its parts
    optimizer.step(1e-3);           // once
    run.recorder.end(run.last.loss);
    run.flops = device.meter().totals(OpClass::Contraction).flops;
  }
  if (!way.picture.empty())
    write_memory_plot(lesson.plot(way.picture), device.allocator(), "A step with " + way.name + " sequences");
  return run;
}

static void describe(const Run& run, const Way& way, const Settings& set, const std::optional<Run>& whole,
                     ReportRow& row, Report& report) {
  run.recorder.fill(row, set.batch * set.model.context);
  row.loss_last = run.last.loss;
  if (!current().device.has_data()) row.ms_per_step = row.tokens_per_s = row.loss_first = row.loss_last = {};
  row.extra = {{"saved MiB", double(run.last.saved_bytes) / 0x1p20}, {"GFLOP", double(run.flops) * 1e-9}};
  check_way(way, run, set.model, set.batch, whole, report);
}

// One batch in many ways: the rows of the report. What does not fit into --memory has no numbers.
static void compare_ways(const Lesson& lesson, const Settings& set, const Loader& loader, Report& report) {
  std::optional<Run> whole;
  for (const Way& way : ways(set.batch)) {
    LessonContext context(lesson);
    ReportRow& row = report.row(way.name);
    try {
      const Run run = train(lesson, set, loader, way);
      describe(run, way, set, whole, row, report);
      if (way.split.size() == 1) whole.emplace(run);
    } catch (const OutOfMemory& e) {
      row.name += ": out of memory";
    }
  }
}

static int lesson_07(int argc, char** argv) {
  Lesson lesson(argc, argv, "07_accumulation", "many micro-batches, one update", 30);
  lesson.done({}, {lesson.plot("07_whole.svg"), lesson.plot("07_micro.svg")});
  if (lesson.print == "example") return means_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  const Text text = load_text("", set.text_bytes, lesson.seed);
  const Loader loader(text.corpus, set.model.context, lesson.seed);
  print_sizes(text.corpus, loader);
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  compare_ways(lesson, set, loader, report);
  if (context.device.has_data()) try {
      LessonContext own(lesson);
      Transformer model(set.model);
      model.initialize(lesson.seed);
      mistakes_table(model, read_batch(loader, 0, set.batch, set.model.context, true),
                     read_batch(loader, 0, set.batch, set.model.context, false), report);
      symptoms_table(lesson, set.model, loader, set.batch, report);
    } catch (const OutOfMemory&) {
      std::cout << "\n(a), (b): left out, because the whole batch does not fit\n";
    }
  report_published("(c) Published runs", published_accumulation(), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_07(argc, argv); });
}
