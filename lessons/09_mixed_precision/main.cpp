// Lesson 09, mixed precision. Weights, activations and the gradients of activations have 16 bits, and sums
// are in fp32. The optimizer updates a master copy of the weights in fp32. In fp16 small gradients underflow:
// they become 0. Therefore the loss is multiplied by a scale before the backward pass, and the gradient of
// the weights is divided by it before the update.
//
// Bytes per parameter with AdamW: 2 + 4 (master copy) + 4 (gradient) + 8 = 18, compared with 16 in fp32.
//
//   make lesson-09                                                          expected last line: PASS
#include <cmath>
#include <iostream>

#include "lessons/09_mixed_precision/batches.h"
#include "lessons/09_mixed_precision/formats.h"
#include "lessons/09_mixed_precision/recipes.h"
#include "lessons/09_mixed_precision/underflow.h"
#include "lessons/published/runs.h"
#include "src/optim/optimizer.h"
#include "src/train/step_recorder.h"
#include "src/train/text.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{
      .vocab = ByteTokenizer::kVocabulary, .context = 32, .layers = 1, .heads = 2, .channels = 32};
  int64_t batch = 1024, micro_batches = 4, text_bytes = 600'000;  // 32,768 tokens
  TransformerConfig wide{
      .vocab = ByteTokenizer::kVocabulary, .context = 64, .layers = 2, .heads = 8, .channels = 512};
};
static Settings for_emulation() {
  Settings set{.batch = 8, .text_bytes = 60'000};
  set.model.context = 8, set.model.channels = 16;
  set.wide = set.model;
  return set;
}

static void train(const Lesson& lesson, const Settings& set, const Loader& loader, const ScaledRecipe& recipe,
                  Transformer& model, ReportRow& row) {
  Device& device = current().device;
  model.initialize(lesson.seed);
  if (recipe.scale > 0) start_loss_scaling(device, recipe.scale);
  AdamW optimizer(model.parameters);
  StepRecorder recorder;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    const TextBatch batch = read_batch(loader, step, set.batch, set.model.context, false);
    if (step == 0 && lesson.print == "tape" && recipe.recipe == "mixed") print_tape(std::cout, model, batch);
    recorder.begin();
    model.parameters.zero_grad();
    const double loss = accumulate(model, batch, even_split(set.batch, set.micro_batches)).loss;
    optimizer.clip_grad_norm(1.0);  // divides the gradient by the scale, and finds overflows
    optimizer.step(warmup_cosine(step, lesson.steps / 10, lesson.steps, 8e-3, 8e-4));
    recorder.end(loss);
  }
  current().end_attempt();  // adjusts the scale after the last step, before the evaluation
  recorder.fill(row, set.batch * set.model.context);
  if (!device.has_data()) {
    row.ms_per_step = row.tokens_per_s = row.loss_first = row.loss_last = std::nullopt;
    return;
  }
  row.loss_last = recorder.losses.back();
  row.loss_held_out = held_out_loss(model, loader, set.batch);
  row.extra = {{"skipped updates", double(lesson.steps - optimizer.scalars().updates)},
               {"last loss scale", device.scalars().loss_scale}};
}

static int lesson_09(int argc, char** argv) {
  Lesson lesson(argc, argv, "09_mixed_precision", "16 bits where they suffice, 32 where they do not",
                kWholeRun);
  const std::string picture = lesson.plot("09_gradients.svg");
  lesson.done({}, {picture});
  if (lesson.print == "example") return scaling_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  const Text text = load_text("", set.text_bytes, lesson.seed);
  const Loader loader(text.corpus, set.model.context, lesson.seed);
  print_sizes(text.corpus, loader);
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  print_formats(std::cout);
  recipes_table();
  std::vector<double> losses;
  for (const ScaledRecipe& recipe : scaled_recipes()) {
    LessonContext own(lesson);
    TransformerConfig config = set.model;
    config.precision = precision_recipe(recipe.recipe);
    Transformer model(config);
    ReportRow& row = report.row(recipe.name());
    train(lesson, set, loader, recipe, model, row);
    losses.push_back(row.loss_held_out.value_or(NAN));
    check_states(recipe, *row.peak, model.parameters.numel(), report);
    if (recipe.recipe == "fp32" && context.device.has_data()) {
      const TextBatch batch = read_batch(loader, lesson.steps, set.batch, set.model.context, false);
      underflow_table(model, lesson.steps, text.corpus.bytes, batch, set.micro_batches, picture, report);
      const TextBatch micro = batch.part(0, set.batch / set.micro_batches);
      scale_table(scaled_updates(model, micro), lesson.steps, report);
      updates_table(unchanged_weights(model, micro), report);
    }
  }
  check_losses(lesson.steps, set.batch * set.model.context, losses, report);
  batches_table(batch_costs(lesson, set.wide), report);
  report_published("(f) Published runs: BERT-large in fp16", published_mixed_precision(), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_09(argc, argv); });
}
