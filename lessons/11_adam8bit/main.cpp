// Lesson 11, 8-bit Adam. AdamW keeps m and v of each parameter: 8 bytes. Here both are codes of 8 bits, with
// a scale for each 256 elements. The update is QuantizedAdamW::update in quantized_adamw.cpp: dequantize m
// and v, update m, v and the weight as AdamW does, requantize m and v. The codebook decides whether the model
// trains and how large single updates become.
//
// Memory of the states: 2 + 2 * 4 / 256 = 2.03125 bytes per parameter.
//
//   make lesson-11                                                          expected last line: PASS
#include <cmath>
#include <iostream>
#include <map>

#include "lessons/11_adam8bit/contenders.h"
#include "lessons/11_adam8bit/moves.h"
#include "lessons/11_adam8bit/update_time.h"
#include "lessons/published/runs.h"
#include "src/core/progress.h"
#include "src/core/table.h"
#include "src/train/text.h"

using namespace gradus;

constexpr int64_t kSteps = 800;
static RunSetting on_cpu() {
  return {{.vocab = ByteTokenizer::kVocabulary, .context = 64, .layers = 2, .heads = 4, .channels = 64},
          8,
          kSteps,
          6e-3};
}
static RunSetting for_emulation() {
  RunSetting s = on_cpu();
  s.model.context = 16, s.model.layers = 1, s.model.channels = 32, s.batch = 4, s.moves_steps = 10;
  return s;
}

// (a) Trains with each optimizer once, from the same initial weights.
static std::vector<Trained> train_all(const Lesson& lesson, const RunSetting& setting, const Loader& loader,
                                      Report& report) {
  std::vector<Trained> all;
  Progress progress("runs", int64_t(adam_contenders().size()));
  for (const AdamContender& contender : adam_contenders()) {
    all.push_back(train(lesson, setting, loader, contender, lesson.seed));
    report.row(contender.name) = all.back().row;
    check_bytes(all.back(), report);
    progress.step(int64_t(all.size()), all.back().losses.back());
  }
  return all;
}

// Held-out losses compared with fp32. With several seeds: means over the seeds, of the optimizers that are
// expected to train as well as fp32.
static void compare_losses(const Lesson& lesson, const RunSetting& setting, const Loader& loader,
                           const std::vector<Trained>& first, int64_t seeds, Report& report) {
  std::map<std::string, double> mean;
  const auto add = [&](const Trained& t) { mean[t.row.name] += *t.row.loss_held_out / double(seeds); };
  const auto every_seed = [](const AdamContender& c) {
    return c.name == "fp32" || c.name == "AdamW8bit" || c.micro_batches > 1;
  };
  for (const Trained& t : first) add(t);
  Progress progress("seeds", seeds);
  for (int64_t seed = 1; seed < seeds; ++seed) {
    for (const AdamContender& c : adam_contenders())
      if (every_seed(c)) add(train(lesson, setting, loader, c, lesson.seed + uint64_t(seed)));
    progress.step(seed + 1, mean["AdamW8bit"]);
  }
  Table table({seeds == 1 ? "AdamW's states, one seed"
                          : "AdamW's states, mean of " + std::to_string(seeds) + " seeds",
               "held-out loss", "increase over fp32"});
  for (const AdamContender& c : adam_contenders())
    if (seeds == 1 || every_seed(c))
      table.row({c.name, number_text(mean[c.name]), percent_text(mean[c.name] / mean["fp32"] - 1)});
  std::cout
      << "\n(a) Held-out loss after training; scales: one per tensor, or one per block of 256 elements\n\n"
      << table;
  check_losses(mean, seeds, is_for_steps(kSteps, setting.steps), report);
}

static int lesson_11(int argc, char** argv) {
  Lesson lesson(argc, argv, "11_adam8bit", "AdamW's states in 8 bits", kSteps);
  const int64_t seeds = lesson.args.integer(
      "seeds", 1, "seeds of the initial weights; with more than one, (a) shows means over them", 1, 100);
  std::vector<std::string> pictures;
  if (lesson.device != "meta") pictures = {lesson.plot("11_losses.svg")};
  lesson.done({}, pictures);
  if (lesson.print == "example") return adam8bit_by_hand(std::cout), 0;
  LessonContext context(lesson);
  RunSetting setting = std::string_view(context.device.name()) == "emu" ? for_emulation() : on_cpu();
  setting.steps = lesson.steps;
  const Text text = load_text("", 600'000, lesson.seed);
  const Loader loader(text.corpus, setting.model.context, lesson.seed);
  print_sizes(text.corpus, loader);
  Report report = lesson.report();
  report.config(setting.model, setting.batch);
  report.config("steps", lesson.steps);
  const std::vector<Trained> all = train_all(lesson, setting, loader, report);
  if (context.device.has_data()) {
    compare_losses(lesson, setting, loader, all, seeds, report);
    check_errors(error_table(all[0].moments), report);
    moves_table(moves_of_all(lesson, setting, std::min(lesson.steps, setting.moves_steps)), report);
    draw_losses(all, pictures[0]);
  }
  adam_time_table(report);
  report_published("(e) Published runs", published_adam8bit(), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_11(argc, argv); });
}
