// Lesson 12, LoRA and QLoRA. To adapt a trained model, its weights W stay as they are; beside some of them,
// y = x W^T + alpha/r (x A^T) B^T, and only A (r, in) and B (out, r) train: gradients and optimizer states
// are those of a few numbers. What does not train can be kept in 4 bits.
//
// Memory a weight, with AdamW in fp32: 16 bytes if it trains, 4 if it is frozen, 0.52 in NF4.
//
//   make lesson-12                                                          expected last line: PASS
#include <iostream>

#include "lessons/12_lora/adapt.h"
#include "lessons/12_lora/four_bits.h"
#include "lessons/12_lora/paging.h"
#include "lessons/12_lora/same.h"
#include "lessons/published/runs.h"
#include "src/train/text.h"

using namespace gradus;

static Adaptation on_cpu() {
  Adaptation a{{.vocab = ByteTokenizer::kVocabulary, .context = 64, .layers = 2, .heads = 4, .channels = 128},
               8};
  a.model.output_head = OutputHead::Untied;
  return a;
}
static Adaptation for_emulation() {
  Adaptation a = on_cpu();
  a.model.context = 16, a.model.layers = 1, a.model.channels = 32, a.batch = 4;
  return a;
}

// Every way, from the same base.
static std::vector<Adapted> adapt_all(const Lesson& lesson, const Adaptation& a, const Weights& base,
                                      const Loader& loader, const Loader& other, const std::string& folder,
                                      Report& report) {
  std::vector<Adapted> all;
  for (const WayToAdapt& way : ways_to_adapt()) {
    all.push_back(adapt(lesson, a, base, loader, other, way, way.name == "r 2" ? folder : ""));
    report.row(way.name) = all.back().row;
    check_bytes(a.model, way, (*all.back().row.peak)[Kind::Optimizer], all.back().gradient_bytes, report);
  }
  return all;
}

static int lesson_12(int argc, char** argv) {
  Lesson lesson(argc, argv, "12_lora", "LoRA, and QLoRA: training little of a model", kWholeRun);
  const std::string folder =
      lesson.args.text("save", "", "write the adapters of 'r 2' to this folder, as PEFT does");
  std::vector<std::string> pictures;
  if (lesson.device != "meta") pictures = {lesson.plot("12_losses.svg")};
  lesson.done({}, pictures);
  if (lesson.print == "example") return lora_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const bool emulated = std::string_view(context.device.name()) == "emu";
  Adaptation a = emulated ? for_emulation() : on_cpu();
  a.steps = lesson.steps, a.base_steps = lesson.steps * 25 / 8;
  const int64_t bytes = emulated ? 30'000 : 300'000;
  const Text old_text = generated_text("steps.grammar", 2 * bytes, lesson.seed),
             new_text = generated_text("orders.grammar", bytes, lesson.seed);
  const Loader old_loader(old_text.corpus, a.model.context, lesson.seed),
      new_loader(new_text.corpus, a.model.context, lesson.seed);
  Report report = lesson.report();
  report.config(a.model, a.batch);
  report.config("steps", lesson.steps);
  const Weights base = train_base(lesson, a, old_loader, report.row("the base"));
  if (context.device.has_data()) same_function(measure_same_function(a.model, base, lesson.seed), report);
  const std::vector<Adapted> all = adapt_all(lesson, a, base, new_loader, old_loader, folder, report);
  if (context.device.has_data()) {
    if (!emulated) compare_losses(all, lesson.steps, report);
    draw_losses(all, *new_text.floor, pictures[0]);
  }
  four_bits_table(measure_four_bits(), report);
  paged_runs(measure_paged_runs(lesson), report);
  report_published("(d) Published: LoRA", published_lora(), report);
  report_published("(e) Published: QLoRA", published_qlora(), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_12(argc, argv); });
}
