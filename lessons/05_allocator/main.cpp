// Lesson 05, the caching allocator. When batches change their length, the allocator reserves much more memory
// than the program uses, because segments cut for one length do not fit the next length. The lesson measures
// four cures, and finds two planted faults in the memory history alone.
//
// reserved = allocated + cached; fragmentation = peak reserved / peak allocated, at least 1. GPT-2 with 4 x
// 1024 tokens needs 16 N bytes, and 4 (4 · 1024) (L (16 C + H T + 4) + 2 C + V + 3) bytes for activations:
// 7.2 GiB in all. It runs on meta, because the allocator makes the same decisions on every device; a small
// model on --device checks that.
//
//   make lesson-05                        expected last line: PASS
#include <iostream>

#include "lessons/05_allocator/checks.h"
#include "lessons/05_allocator/drawing.h"
#include "lessons/05_allocator/faults.h"
#include "lessons/05_allocator/workload.h"
#include "src/io/memory_files.h"
#include "src/train/lesson.h"

using namespace gradus;

struct Settings {
  Workload gpt2{.model = transformer_config("gpt2"),
                .batch = 4,
                .shortest = 128,
                .median = 307,
                .longest = 1024,
                .spread = 0.5};
  Workload small{.model = {.vocab = 256, .context = 256, .layers = 2, .heads = 4, .channels = 64},
                 .batch = 4,
                 .shortest = 32,
                 .median = 77,
                 .longest = 256,
                 .spread = 0.5};
  uint64_t workloads = 10;  // of GPT-2, each with its own seed
  int64_t small_steps = 12, drawn_steps = 60;
  Cure naive{.name = "naive"}, limited{.name = "naive, 8 GiB GPU", .budget = int64_t(8) << 30};
  std::vector<Cure> cures{{.name = "padded", .padded = true},
                          {.name = "warmed up", .warmed_up = true},
                          {.name = "expandable", .expandable = true},
                          {.name = "expandable, warmed up", .warmed_up = true, .expandable = true},
                          {.name = "emptied every step", .empty_every = 1}};
  Cure no_cure{.name = "emptied every 10 steps", .empty_every = 10};
};

static WorkloadRun measure(Report& report, const Settings& set, const Cure& cure, const Lesson& lesson) {
  const WorkloadRun run = run_on_meta(set.gpt2, cure, lesson.steps, lesson.seed, set.workloads);
  ReportRow& row = report.row("GPT-2 " + cure.name);
  row.peak = run.peak, row.reserved_bytes = run.reserved;
  row.extra = {{"fragmentation", run.ratio()},
               {"device allocations after step 2", double(run.late_allocations)},
               {"batch not longer", double(run.repeat_allocations)},
               {"device frees", double(run.device_frees)}};
  if (cure.budget > 0) row.extra.emplace_back("OOM", double(run.out_of_memory));
  return run;
}

static void measure_cures(Report& report, const Settings& set, const Lesson& lesson) {
  const WorkloadRun naive = measure(report, set, set.naive, lesson),
                    limited = measure(report, set, set.limited, lesson);
  check_naive(naive, limited, lesson.steps, report);
  for (const Cure& cure : set.cures)
    check_cure(cure, measure(report, set, cure, lesson), lesson.steps, report);
  measure(report, set, set.no_cure, lesson);
}

// The same with a small model: on the device, for the time per step, and on meta, for the predicted bytes.
static void measure_time(Report& report, const Settings& set, const Lesson& lesson) {
  const int64_t steps = std::min(lesson.steps, set.small_steps);
  std::vector<Cure> cures{set.naive};
  cures.insert(cures.end(), set.cures.begin(), set.cures.end());
  std::vector<std::array<WorkloadRun, 2>> runs;  // per cure: on the device, and on meta
  for (const Cure& cure : cures) {
    std::array<WorkloadRun, 2>& run = runs.emplace_back();
    for (const bool on_meta : {false, true}) {
      LessonContext context(lesson, on_meta ? "meta" : lesson.device, lesson.memory);
      run[on_meta] = run_workload(set.small, cure, steps, lesson.seed);
    }
    ReportRow& row = report.row("small " + cure.name);
    row.reserved_bytes = run[0].reserved;
    row.predicted_bytes = run[1].reserved;
    if (current().device.has_data() && steps > 2) row.ms_per_step = run[0].step_seconds * 1e3;
  }
  check_small(runs, report);
}

static void draw(const std::string& path, const std::string& title, size_t first = 0) {
  write_memory_plot(path, {{"", current().device.allocator().history(), first}},
                    "GPT-2 naive, 8 GiB GPU: " + title);
  std::cout << "  " << title << ": " << path << "\n";
}

// Draws the memory of the 8 GiB GPU in the first steps of the first workload, event by event; and, in a
// second picture, the step that empties the cache for the first time.
static void draw_workload(const Settings& set, const Lesson& lesson) {
  const int64_t steps = std::min(lesson.steps, set.drawn_steps);
  int64_t emptied = -1;
  std::cout << "Pictures of the row GPT-2 naive, 8 GiB GPU, first workload:\n";
  {
    Context context("meta");
    context.device.allocator().keep_history();
    run_workload(set.gpt2, set.limited, steps, lesson.seed, [&](int64_t step, Transformer&, Tape&) {
      const int64_t held = int64_t(context.device.allocator().segments().size());
      if (emptied < 0 && held < context.device.meter().device_requests()) emptied = step;
    });
    draw(lesson.plot("05_naive.svg"), "the first " + std::to_string(steps) + " steps");
  }
  if (emptied < 1) return;
  Context context("meta");
  Allocator& allocator = context.device.allocator();
  size_t first = 0;  // event of the picture; those before it list what was allocated before the recording
  run_workload(set.gpt2, set.limited, emptied + 1, lesson.seed, [&](int64_t step, Transformer&, Tape&) {
    if (step == emptied - 1) allocator.keep_history(), first = allocator.history().size();
  });
  draw(lesson.plot("05_emptied.svg"), "the cache is emptied in step " + std::to_string(emptied), first);
}

constexpr const char* kHowToRead = R"(
How to read the table:
  GPT-2: workloads on meta; memory of the workload with the largest fragmentation (reserved / peak), largest value of each count
  small: one short workload on --device; predicted: reserved on meta
  device allocations after step 2: all after the first two steps
  batch not longer: of these, in steps whose batch is at most as long as an earlier one
  OOM: number of workloads that end out of memory
)";

static int lesson_05(int argc, char** argv) {
  Lesson lesson(argc, argv, "05_allocator", "fragmentation of the caching allocator, and four cures", 300);
  const std::string folder = lesson.args.text("history", "build/plots",
                                              "folder for the page and the snapshot of the memory history");
  lesson.done({}, {lesson.plot("05_naive.svg"), lesson.plot("05_emptied.svg"), lesson.plot("05_faults.svg"),
                   folder + "/05_memory.html", folder + "/05_snapshot.pickle"});
  if (lesson.print == "example") return draw_example(std::cout), 0;
  LessonContext context(lesson);
  const Settings set;

  Report report = lesson.report();
  report.config("workloads", int64_t(set.workloads));
  report.config("steps", lesson.steps);
  find_faults(report, set.small, lesson, folder);
  draw_workload(set, lesson);
  measure_cures(report, set, lesson);
  measure_time(report, set, lesson);
  std::cout << kHowToRead;
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_05(argc, argv); });
}
