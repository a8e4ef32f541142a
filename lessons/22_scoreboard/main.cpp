// Lesson 22, the scoreboard: measures every method of the course, alone and combined, on one model. This
// program is also the trainer, which has all methods as flags; its loop is in trainer.cpp.
//
//   make lesson-22                           expected last line: PASS
//   make lesson-22 ARGS="--memory=40MiB"     finds the fastest combination that fits, and runs it
//   make gradus && build/gradus train --help
#include <iostream>

#include "lessons/22_scoreboard/best.h"
#include "lessons/22_scoreboard/commands.h"
#include "lessons/22_scoreboard/methods.h"
#include "src/parallel/comm/processes.h"
#include "src/train/lesson.h"

using namespace gradus;

static Measured plain_run(const Scoreboard& board, Report& report) {
  const Measured plain = board.compare("", "");
  ReportRow& row = report.row("plain run");
  row.peak = plain.at_peak;
  if (std::isnan(plain.seconds)) return plain;
  row.ms_per_step = plain.seconds * 1e3;
  row.tokens_per_s = double(board.settings("").batch * config_of(board.settings("")).context) / plain.seconds;
  return plain;
}

// Finds the best combination within `budget` for the current device, and trains it for `steps` steps.
static void run_best(const Scoreboard& board, int64_t budget, int64_t steps, Report& report) {
  const std::string device = current().device.name();
  BestCombination search(board, measured_machine(current().device), device == "cuda");
  const std::optional<Combination> best = search.within(budget);
  check(best.has_value(), "--memory=", bytes_text(budget), ": every combination needs at least ",
        bytes_text(search.least_bytes()));
  std::cout << "combination found for " << bytes_text(budget) << ": " << best->text() << "\n";
  const TrainSettings s = board.settings(best->text());
  const Context context(device, uint64_t(s.seed), budget);
  Training training(s, board.text());
  StepRecorder recorder;
  for (int64_t i = 0; i < steps; ++i) {
    recorder.begin();
    recorder.end(training.step());
  }
  ReportRow& row = report.row(s.model);
  recorder.fill(row, s.batch * config_of(s).context);
  row.predicted_bytes = search.needs(*best).allocated;
  check_reserved(recorder.reserved, budget, report);
}

static constexpr const char* kPublishedTitle =
    "(c) Published memory in MiB. BERT-large: peak according to NVML. polyglot-ko-1.3b: still allocated "
    "after the update. 4 x 1: 4 micro-batches of 1 sequence\n"
    "reproduced: the allocations of the published program, repeated on meta (shapes without data). "
    "gradus: our model\n"
    "softmax after dropout: saved in addition to softmax. outputs: tensors that the forward pass "
    "returned. buffers: masks\n"
    "allocator slack: reserved, but not allocated. states: of the optimizer\n";

static int lesson_22(int argc, char** argv) {
  Lesson lesson(
      argc, argv, "22_scoreboard",
      "measures the methods of the course; with train, eval, sample or plan as first word: the trainer", 12);
  const std::string model =
      lesson.args.text("model", "gpt-4x128x4", "model of all runs: gpt-LAYERSxCHANNELSxHEADS, gpt2, ...");
  const int64_t batch = lesson.args.integer("batch", 16, "sequences per step of the plain run", 1, 1 << 20);
  const std::string picture = lesson.plot("22_methods.svg");
  lesson.done({}, {picture});
  if (lesson.print == "example") return front_by_hand(std::cout), 0;
  const LessonContext context(lesson, lesson.device, 0);
  const bool small = context.device.name() == std::string("emu");
  std::string flags = "--model=" + model + " --batch=" + std::to_string(batch) +
                      " --seed=" + std::to_string(lesson.seed) + " --text-bytes=100000";
  if (small) flags = "--model=gpt-2x32x2 --context=16 --batch=16 --text-bytes=20000";
  const Scoreboard board(flags, lesson.steps, lesson.trace.get());
  Report report = lesson.report();
  report.config(config_of(board.settings("")), board.settings("").batch);
  report.config("timed steps per method", lesson.steps);
  if (lesson.memory > 0) {
    run_best(board, lesson.memory, lesson.steps, report);
    return lesson.finish(report);
  }
  const Measured plain = plain_run(board, report);
  const int64_t sequences = board.settings("").batch;
  check(sequences % 4 == 0, "--batch=", sequences, ": it must be a multiple of 4");
  std::vector<Method> methods = published_methods(sequences);
  const std::vector<Method> more = course_methods(sequences);
  std::vector<Measured> measured = run_methods(
      "(a) Ten methods of a published table, relative to the plain run: fp32, AdamW, all activations saved\n"
      "relative tokens/s: steps of the method alternate with steps of a plain run of its own; \"both\": the "
      "method and its plain run\n"
      "peak: without the workspace. Ranks are simulated: time of one rank, largest peak of a rank\n"
      "published gain: what the method improves, according to the table. measured here: agrees, or only what "
      "differs",
      methods, board, report, &plain);
  for (const Measured& m :
       run_methods("(b) More methods of the course, and combinations, relative to the plain run\n"
                   "each-block, from-the-start: checkpointing policies. accumulation: micro-batches of one "
                   "sequence. head in chunks: logits of 128 tokens at a time",
                   more, board, report))
    measured.push_back(m);
  methods.insert(methods.end(), more.begin(), more.end());
  if (context.device.has_data()) draw_methods(methods, measured, picture);
  std::cout << kPublishedTitle;
  scoreboard_published(report);
  budgets_table(Scoreboard("--model=gpt2 --vocab=0 --context=0 --text-bytes=20000", 1),
                machine_called("A100"), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] {
    return run_process(argc, argv, [&] {
      const Command* command = command_in(argc, argv);
      return command ? run_command(*command, with_files(argc, argv)) : lesson_22(argc, argv);
    });
  });
}
