// Lesson 07, gradient accumulation. A batch that does not fit into memory is divided into micro-batches.
// Their gradients are added up; then the optimizer makes one update. The gradient is that of the whole batch,
// but only the activations of one micro-batch are in memory.
//
// Bytes of the activations: 4 b T (L (16 C + H T + 4) + 2 C + V + 3), with b sequences per micro-batch.
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

// Trains with one way to split the batch. Data, dropout masks and initial weights are the same for all ways.
static Run train(const Lesson& lesson, const Settings& set, const Loader& loader, const Way& way) {
  Device& device = current().device;
  Transformer model(set.model);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  Run run;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    const TextBatch batch = read_batch(loader, step, set.batch, set.model.context, way.ragged);
    device.meter().reset_totals();
    if (step == lesson.steps - 1 && way.in_picture) {
      device.allocator().keep_history();
      run.memory = {way.name, {}, device.allocator().history().size()};  // first what is allocated now
    }
    if (step == 0 && lesson.print == "tape" && way.split.size() == 1 && !way.ragged)
      print_tape(std::cout, model, batch);
    run.recorder.begin();
    run.last = {};
    model.parameters.zero_grad();              // once per batch, not once per micro-batch
    const Tensor count = target_count(batch);  // of the whole batch
    for (const TextBatch& micro : batch.parts(way.split)) {
      const Tensor ids = on_device(micro.ids, micro.T, "inputs"),
                   targets = on_device(micro.targets, micro.T, "targets");
      Tape tape;
      const Tensor share = share_of_loss(model, ids, targets, micro.first_sample, count);  // forward pass
      run.last.saved_bytes = std::max(run.last.saved_bytes, tape.saved_bytes());
      run.last.loss += item(share);
      tape.backward(share);  // adds to the gradients; frees what the tape saved
    }
    if (step == 0)
      for (const Parameter& p : model.parameters) run.first_gradient.push_back(to_host<double>(p.leaf.grad));
    optimizer.clip_grad_norm(1.0);  // the gradient of the whole batch
    optimizer.step(1e-3);           // one update per batch
    run.recorder.end(run.last.loss);
    run.flops = device.meter().totals(OpClass::Contraction).flops;
  }
  if (way.in_picture) run.memory.history = device.allocator().history();
  return run;
}

static void describe(const Run& run, const Way& way, const Settings& set, const std::optional<Run>& whole,
                     ReportRow& row, Report& report) {
  run.recorder.fill(row, set.batch * set.model.context);
  row.loss_last = run.last.loss;
  if (!current().device.has_data()) row.ms_per_step = row.tokens_per_s = row.loss_first = row.loss_last = {};
  row.extra = {{"saved tensors MiB", double(run.last.saved_bytes) / 0x1p20},
               {"GFLOP/step", double(run.flops) * 1e-9}};
  if (way.split.size() > 1 && whole && current().device.has_data())
    row.extra.emplace_back("relative gradient difference", worst_distance(run, *whole));
  check_way(way, run, set.model, set.batch, whole, report);
}

// Each way is a row of the report. A way that does not fit into --memory has no numbers.
static void compare_ways(const Lesson& lesson, const Settings& set, const Loader& loader, Report& report) {
  std::optional<Run> whole;
  std::vector<MemoryPanel> panels;
  for (const Way& way : ways(set.batch)) {
    LessonContext context(lesson);
    ReportRow& row = report.row(way.name);
    try {
      Run run = train(lesson, set, loader, way);
      if (way.in_picture) panels.push_back(std::move(run.memory));
      describe(run, way, set, whole, row, report);
      if (way.split.size() == 1) whole.emplace(run);
    } catch (const OutOfMemory& e) {
      row.name += ": out of memory";
    }
  }
  if (!panels.empty()) write_memory_plot(lesson.plot("07_memory.svg"), panels, "Memory of one training step");
}

static int lesson_07(int argc, char** argv) {
  Lesson lesson(argc, argv, "07_accumulation", "gradient accumulation: many micro-batches, one update", 30);
  lesson.done({}, {lesson.plot("07_memory.svg")});
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
      std::cout << "\n(a) and (b) are skipped: the whole batch does not fit into --memory\n";
    }
  report_published(
      "(c) Memory of BERT-large: published; reproduced (the same allocations, repeated on meta); gradus (our "
      "model)",
      published_accumulation(), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_07(argc, argv); });
}
