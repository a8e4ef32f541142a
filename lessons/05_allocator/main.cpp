// Lesson 05, the caching allocator. Batches of changing length make it hold far more memory than is ever in
// use: segments cut for one length are of no use to the next. Four cures are measured, and two faults are
// found from the memory history alone.
//
// Reserved = allocated + cached; fragmentation is peak reserved ÷ peak allocated, 1 at best. GPT-2 with 4 x
// 1024 tokens needs 16 N bytes and 4 (4 · 1024) (L (16 C + H T + 4) + 2 C + V + 3) for activations: 7.2 GiB.
// It runs on meta: the allocator decides alike on every device, and a small model on --device shows that.
//
//   make lesson-05                        expected last line: PASS
#include <iostream>

#include "lessons/05_allocator/checks.h"
#include "lessons/05_allocator/drawing.h"
#include "lessons/05_allocator/faults.h"
#include "lessons/05_allocator/stream.h"
#include "src/io/memory_files.h"
#include "src/train/lesson.h"

using namespace gradus;

struct Settings {
  Stream gpt2{.model = transformer_config("gpt2"),
              .batch = 4,
              .shortest = 128,
              .median = 307,
              .longest = 1024,
              .spread = 0.5};
  Stream small{.model = {.vocab = 256, .context = 256, .layers = 2, .heads = 4, .channels = 64},
               .batch = 4,
               .shortest = 32,
               .median = 77,
               .longest = 256,
               .spread = 0.5};
  uint64_t streams = 10;  // of the large model, with seeds of their own
  int64_t small_steps = 12, drawn_steps = 60;
  Cure naive{.name = "naive"}, card{.name = "naive, card of 8 GiB", .budget = int64_t(8) << 30};
  std::vector<Cure> cures{{.name = "padded", .padded = true},
                          {.name = "warmed up", .warmed_up = true},
                          {.name = "expandable", .expandable = true},
                          {.name = "expandable, warmed up", .warmed_up = true, .expandable = true},
                          {.name = "emptied every step", .empty_every = 1}};
  Cure no_cure{.name = "emptied every 10 steps", .empty_every = 10};
};

static StreamRun measure(Report& report, const Settings& set, const Cure& cure, const Lesson& lesson) {
  const StreamRun run = run_on_meta(set.gpt2, cure, lesson.steps, lesson.seed, set.streams);
  ReportRow& row = report.row("GPT-2 " + cure.name);
  row.reserved_bytes = run.reserved;
  row.extra = {{"÷ allocated", run.ratio()},
               {"asked later", double(run.late_requests)},
               {"not longer", double(run.repeat_requests)},
               {"given back", double(run.given_back)}};
  if (cure.name == "naive") row.peak = run.peak;
  if (cure.budget > 0) row.extra.emplace_back("OOM", double(run.out_of_memory));
  return run;
}

static void measure_cures(Report& report, const Settings& set, const Lesson& lesson) {
  const StreamRun naive = measure(report, set, set.naive, lesson),
                  card = measure(report, set, set.card, lesson);
  check_naive(naive, card, lesson.steps, report);
  for (const Cure& cure : set.cures)
    check_cure(cure, measure(report, set, cure, lesson), lesson.steps, report);
  measure(report, set, set.no_cure, lesson);
}

// The same with a small model: on the device, for the time of a step, and on meta, for the bytes.
static void measure_time(Report& report, const Settings& set, const Lesson& lesson) {
  const int64_t steps = std::min(lesson.steps, set.small_steps);
  std::vector<Cure> cures{set.naive};
  cures.insert(cures.end(), set.cures.begin(), set.cures.end());
  std::vector<std::array<StreamRun, 2>> runs;  // on the device, and on meta
  for (const Cure& cure : cures) {
    std::array<StreamRun, 2>& run = runs.emplace_back();
    for (const bool on_meta : {false, true}) {
      LessonContext context(lesson, on_meta ? "meta" : lesson.device, lesson.memory);
      run[on_meta] = run_stream(set.small, cure, steps, lesson.seed);
    }
    ReportRow& row = report.row("small " + cure.name);
    row.reserved_bytes = run[0].reserved;
    row.predicted_bytes = run[1].reserved;
    if (current().device.has_data() && steps > 2) row.ms_per_step = run[0].step_seconds * 1e3;
  }
  check_small(runs, report);
}

static void draw(const std::string& path, const std::string& title) {
  write_memory_plot(path, current().device.allocator(), title);
  std::cout << title << ": " << path << "\n";
}

// What the card holds in the first steps of the first stream, event by event; and, more closely, when the
// cache is emptied for the first time.
static void draw_stream(const Settings& set, const Lesson& lesson) {
  const int64_t steps = std::min(lesson.steps, set.drawn_steps);
  int64_t emptied = -1;
  {
    Context context("meta");
    context.device.allocator().keep_history();
    run_stream(set.gpt2, set.card, steps, lesson.seed, [&](int64_t step, Transformer&, Tape&) {
      const int64_t held = int64_t(context.device.allocator().segments().size());
      if (emptied < 0 && held < context.device.meter().device_requests()) emptied = step;
    });
    draw(lesson.plot("05_naive.svg"), "GPT-2, batches of changing length, a card of 8 GiB");
  }
  if (emptied < 1) return;
  Context context("meta");
  run_stream(set.gpt2, set.card, emptied + 1, lesson.seed, [&](int64_t step, Transformer&, Tape&) {
    if (step == emptied - 1) context.device.allocator().keep_history();
  });
  draw(lesson.plot("05_emptied.svg"), "8 GiB, the cache emptied in step " + std::to_string(emptied));
}

static int lesson_05(int argc, char** argv) {
  Lesson lesson(argc, argv, "05_allocator", "where reserved memory goes, and how to keep it", 300);
  const std::string folder = lesson.args.text("history", "build/plots",
                                              "write the memory history's page and snapshot to this folder");
  lesson.done({}, {lesson.plot("05_naive.svg"), lesson.plot("05_emptied.svg"), lesson.plot("05_faults.svg"),
                   folder + "/05_memory.html", folder + "/05_snapshot.pickle"});
  if (lesson.print == "example") return draw_example(std::cout), 0;
  LessonContext context(lesson);
  const Settings set;

  Report report = lesson.report();
  report.config("streams", int64_t(set.streams));
  report.config("steps", lesson.steps);
  find_faults(report, set.small, lesson, folder);
  draw_stream(set, lesson);
  measure_cures(report, set, lesson);
  measure_time(report, set, lesson);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_05(argc, argv); });
}
