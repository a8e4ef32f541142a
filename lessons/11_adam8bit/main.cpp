// Lesson 11, 8-bit Adam. AdamW remembers m and v of each parameter: 8 bytes. Here they are codes of 8 bits,
// with a scale for every 256 of them: each update makes them numbers, changes these as AdamW does, and makes
// them codes again. What the codes stand for decides whether the model trains, and how far a weight can move.
//
// Memory of the states: 2 + 2 * 4 / 256 = 2.03125 bytes a parameter.
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

// (a) All contenders once, from the same weights.
static std::vector<Trained> race(const Lesson& lesson, const RunSetting& setting, const Loader& loader,
                                 Report& report) {
  std::vector<Trained> all;
  Progress progress("runs", int64_t(adam_contenders().size()));
  for (const AdamContender& who : adam_contenders()) {
    all.push_back(train(lesson, setting, loader, who, lesson.seed));
    report.row(who.name) = all.back().row;
    check_bytes(all.back(), report);
    progress.step(int64_t(all.size()), all.back().losses.back());
  }
  return all;
}

// Held-out losses of those that shall train as well as fp32, beside its own: means of several starts.
static void compare_losses(const Lesson& lesson, const RunSetting& setting, const Loader& loader,
                           const std::vector<Trained>& first, int64_t starts, Report& report) {
  std::map<std::string, double> mean;
  const auto add = [&](const Trained& t) { mean[t.row.name] += *t.row.loss_held_out / double(starts); };
  const auto again = [](const AdamContender& who) {
    return who.name == "fp32" || who.name == "AdamW8bit" || who.micro_batches > 1;
  };
  for (const Trained& t : first) add(t);
  Progress progress("starts", starts);
  for (int64_t start = 1; start < starts; ++start) {
    for (const AdamContender& who : adam_contenders())
      if (again(who)) add(train(lesson, setting, loader, who, lesson.seed + uint64_t(start)));
    progress.step(start + 1, mean["AdamW8bit"]);
  }
  Table table({"mean of " + std::to_string(starts), "held out", "worse than fp32 by"});
  for (const AdamContender& who : adam_contenders())
    if (starts == 1 || again(who))
      table.row({who.name, number_text(mean[who.name]), percent_text(mean[who.name] / mean["fp32"] - 1)});
  std::cout << "\n(a) Held-out loss\n\n" << table;
  check_losses(mean, starts, is_for_steps(kSteps, setting.steps), report);
}

static int lesson_11(int argc, char** argv) {
  Lesson lesson(argc, argv, "11_adam8bit", "AdamW's states in 8 bits", kSteps);
  const int64_t starts =
      lesson.args.integer("starts", 1, "train so many times, from other first weights", 1, 100);
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
  const std::vector<Trained> all = race(lesson, setting, loader, report);
  if (context.device.has_data()) {
    compare_losses(lesson, setting, loader, all, starts, report);
    check_damage(damage_table(all[0].moments), report);
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
