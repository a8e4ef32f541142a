// Lesson 12, LoRA and QLoRA. A model that was trained on one text is adapted to a new text. Its weights W are
// frozen. Some of its linear layers get an adapter, which adds a product of two small matrices:
//
//   y  = x W^T + b
//   y += alpha/r (x A^T) B^T                              A is (r, in), B is (out, r), W is (out, in)
//
// Only A and B train, so only A and B have gradients and optimizer states. QLoRA also stores W in 4 bits.
//
// Bytes per weight with AdamW in fp32: 16 if it trains, 4 if it is frozen, 0.52 if it is frozen in NF4.
//
//   make lesson-12                                                          expected last line: PASS
#include <cmath>
#include <iostream>

#include "lessons/12_lora/adapt.h"
#include "lessons/12_lora/four_bits.h"
#include "lessons/12_lora/paging.h"
#include "lessons/12_lora/same.h"
#include "lessons/published/runs.h"
#include "src/core/progress.h"
#include "src/io/peft.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/step_recorder.h"
#include "src/train/text.h"

using namespace gradus;

// The steps of every run of this lesson. AdamW makes states for the parameters that train.
static void train(Transformer& model, const std::string& name, const Loader& loader, const Adaptation& a,
                  int64_t steps, double learning_rate, StepRecorder& recorder) {
  Context& context = current();
  Tensor inputs(context.device, {a.batch, a.model.context}, DType::I32, Kind::Data, "inputs");
  Tensor targets(context.device, {a.batch, a.model.context}, DType::I32, Kind::Data, "targets");
  AdamW optimizer(model.parameters, {.weight_decay = 0.01f});
  const bool has_data = context.device.has_data();
  Progress progress(name, steps);
  for (int64_t step = 0; step < steps; ++step) {
    recorder.begin();
    if (optimizer.pager) move_states_to_host(context.device);  // they return for the update
    read_batch(loader, step, inputs, targets);
    Tape tape;
    const Tensor loss = model.loss(inputs, targets);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(warmup_cosine(step, steps / 20, steps, learning_rate, learning_rate / 10));
    recorder.end(has_data ? item(loss) : NAN);
    if (has_data) progress.step(step + 1, recorder.losses.back());
  }
}

// (a) LoRA: add adapters, train them, merge them. Each time the logits of the same tokens are computed.
static SameFunction add_train_merge(const Adaptation& a, const Weights& base, const Loader& loader,
                                    uint64_t seed) {
  const auto model = base_model(a.model, base);
  const Tensor ids = random_tokens({2, a.model.context}, a.model.vocab, seed, "inputs");
  SameFunction f;
  f.base = logits_of(*model, ids);
  add_lora(*model, ".*", {.r = 2, .alpha = 4}, seed);  // freezes all weights; A is random, B is 0
  f.adapted = logits_of(*model, ids);
  StepRecorder recorder;
  for (const int64_t steps : {1, 9}) {
    train(*model, "(a) LoRA", loader, a, steps, 1e-2, recorder);
    f.of_a.push_back(largest_gradient(*model, "lora_A.weight"));  // of the last of these steps
    f.of_b.push_back(largest_gradient(*model, "lora_B.weight"));
  }
  f.trained = logits_of(*model, ids);
  merge_lora(*model);  // W <- W + alpha/r B A
  f.merged = logits_of(*model, ids);
  return f;
}

// The base model: all weights train, from random values.
static Weights train_base(const Lesson& lesson, const Adaptation& a, const Loader& loader, ReportRow& row) {
  const LessonContext context(lesson);
  Transformer model(a.model);
  model.initialize(lesson.seed);
  StepRecorder recorder;
  train(model, "base model", loader, a, a.base_steps, 3e-3, recorder);
  recorder.fill(row, a.batch * a.model.context);
  if (context.device.has_data()) row.extra = {{kOldText, held_out_loss(model, loader, a.batch)}};
  return weights_of(model);
}

// One way to adapt it, in a context of its own. If `folder` is not empty, the adapters are saved there.
static Adapted adapt(const Lesson& lesson, const Adaptation& a, const Weights& base, const Loader& new_text,
                     const Loader& old_text, const WayToAdapt& way, const std::string& folder) {
  LessonContext context(lesson);
  if (way.paged) context.add_host();
  const auto model = adapted_model(a.model, base, way, lesson.seed);
  StepRecorder recorder;
  train(*model, way.name, new_text, a, a.steps, way.learning_rate, recorder);
  if (!folder.empty()) save_adapters(folder, *model);
  return measure_adapted(*model, recorder, a, new_text, old_text, way.name);
}

static int lesson_12(int argc, char** argv) {
  Lesson lesson(argc, argv, "12_lora", "LoRA and QLoRA: small matrices train next to frozen weights",
                kWholeRun);
  const std::string folder =
      lesson.args.text("save", "", "folder for the adapters of 'LoRA r 2', in PEFT's format");
  const std::string picture = lesson.device == "meta" ? "" : lesson.plot("12_losses.svg");
  lesson.done({}, {picture});
  if (lesson.print == "example") return lora_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const bool has_data = context.device.has_data();
  const bool emulated = std::string_view(context.device.name()) == "emu";
  const Adaptation a = emulated ? for_emulation(lesson.steps) : on_cpu(lesson.steps);
  const int64_t bytes = emulated ? 30'000 : 300'000;
  const Text old_text = generated_text("steps.grammar", bytes, lesson.seed);
  const Text new_text = generated_text("orders.grammar", bytes, lesson.seed);
  const Loader old_loader(old_text.corpus, a.model.context, lesson.seed);
  const Loader new_loader(new_text.corpus, a.model.context, lesson.seed);
  Report report = lesson.report();
  report.config(a.model, a.batch);
  report.config("steps", lesson.steps);
  report.config("base_steps", a.base_steps);
  report.config("entropy", std::round(*new_text.floor * 1e4) / 1e4);  // of the new text
  const Weights base = train_base(lesson, a, old_loader, report.row("base model"));
  if (has_data) same_function(add_train_merge(a, base, new_loader, lesson.seed), report);
  std::vector<Adapted> all;
  for (const WayToAdapt& way : ways_to_adapt()) {
    all.push_back(adapt(lesson, a, base, new_loader, old_loader, way, way.name == kLora ? folder : ""));
    report.row(way.name) = all.back().row;
    check_bytes(a.model, way, all.back(), report);
  }
  if (has_data && !emulated) compare_ways(all, lesson.steps, report);
  if (has_data) draw_losses(all, *new_text.floor, picture);
  four_bits_table(measure_four_bits(), report);
  paged_runs(measure_paged_runs(lesson), report);
  report_published("(d) Published: LoRA", published_lora(), report);
  report_published("(e) Published: QLoRA", published_qlora(), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_12(argc, argv); });
}
