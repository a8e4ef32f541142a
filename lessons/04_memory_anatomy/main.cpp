// Lesson 04, where the memory of a training step goes: the bytes before the step, the bytes that the step
// adds, the kind of each byte at the peak, and the operation that allocated it. Every number is predicted,
// measured, and compared.
//
// Memory of a step in fp32 with AdamW: (4 + 4 + 8) N bytes, and 4 B T (L (16 C + H T + 4) + …) bytes of
// tensors that are saved for backward.
//
//   make lesson-04                                                                 expected last line: PASS
//   make lesson-04 ARGS="--model=bert-large --batch=4 --seq=512 --memory=14GiB"    does this run fit?
#include <algorithm>
#include <iostream>

#include "lessons/04_memory_anatomy/anatomy.h"
#include "lessons/04_memory_anatomy/batch_size.h"
#include "lessons/04_memory_anatomy/by_hand.h"
#include "lessons/04_memory_anatomy/calculator.h"
#include "lessons/04_memory_anatomy/generation.h"
#include "lessons/published/runs.h"
#include "src/core/table.h"
#include "src/nn/generate.h"
#include "src/optim/optimizer.h"
#include "src/train/step_recorder.h"
#include "src/train/utilization.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{.vocab = 256, .context = 128, .layers = 6, .heads = 8, .channels = 256};
  int64_t batch = 8, budget = int64_t(384) << 20;
};
static Settings for_emulation() {
  Settings set{.batch = 2, .budget = int64_t(48) << 20};
  set.model.context = 32, set.model.layers = 2, set.model.channels = 64;
  return set;
}

// (a) Memory in the order of the published walk-through (Hugging Face, "Model training anatomy"): the empty
// device, the first kernel, the model, the first step, more steps.
static void walk_through(const Lesson& lesson, const Settings& set, Report& report) {
  Device& device = current().device;
  Table stages({"(a) memory after", "allocated", "reserved", "occupied by the process"});
  const auto stage = [&](const char* name) {
    stages.row({name, bytes_text(device.meter().now().allocated()), bytes_text(device.meter().reserved()),
                bytes_text(memory_occupied(device))});
  };
  stage("creation of the device");
  {
    Tensor ones(device, {1, 1}, DType::F32, Kind::Temporary, "ones");
    be(ones).fill(ctx(ones, cost::fill(1, DType::F32)), 1, ones.set(), 1.0);
    stage("first tensor and first kernel");
  }
  Transformer model(set.model);
  model.initialize(lesson.seed);
  stage("creation of the model");

  AdamW optimizer(model.parameters);
  StepRecorder recorder;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    recorder.begin();
    const DummyBatch batch = dummy_batch(set.model, set.batch, set.model.context);
    Tape tape;
    const Tensor loss = batch.loss(model);
    if (step == 0 && lesson.print == "tape") tape.print(std::cout);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.step(1e-3);
    recorder.end();
    if (step == 0) stage("first step");
  }
  stage("last step");
  std::cout << stages;
  if (device.has_data()) {
    std::cout << "all steps, the first included: ";
    print_summary(std::cout, device, recorder.total_seconds(), lesson.steps * set.batch);
  }

  ReportRow& row = report.row("training step");
  recorder.fill(row, set.batch * set.model.context);
  compare_with_prediction({set.model, set.batch, set.model.context}, row, needs_steps(2, lesson.steps),
                          report);
  report.predict_time(lesson.steps);
  op_classes_table(model, optimizer, dummy_batch(set.model, set.batch, set.model.context), report);
}

// (f) The KV caches of published models.
static void print_caches_of_models() {
  Table models({"KV cache of", "per token", "whole context", "whole context, 8 beams"});
  for (const char* name : {"gpt2", "gpt2-xl", "polyglot-ko-1.3b"}) {
    TransformerConfig c = transformer_config(name);
    c.precision = precision_recipe("half");
    const int64_t bytes = kv_bytes_per_token(c);
    models.row({std::string(name) + " in 16 bits", bytes_text(bytes), bytes_text(bytes * c.context),
                bytes_text(8 * bytes * c.context)});
  }
  std::cout << "\n" << models;
}

// (h) Published runs, compared with the same programs repeated on meta and with gradus.
static void print_published(Report& report) {
  const PublishedRuns runs = published_runs();
  std::cout << "\n(h) Published memory, compared with two runs on meta: reproduced (the published program, "
               "allocation by allocation) and gradus (the same model)\n\n"
            << runs;
  check_verdicts(runs, report);
}

static int lesson_04(int argc, char** argv) {
  Lesson lesson(argc, argv, "04_memory_anatomy", "where the memory of a training step goes", 10);
  const std::string model = lesson.args.text("model", "",
                                             "only predict the memory of training this model: gpt2, "
                                             "bert-large, polyglot-ko-1.3b, gpt-36x4096x32, ...");
  const int64_t batch = lesson.args.integer("batch", 1, "with --model: sequences per step", 1, 1 << 24);
  const int64_t seq =
      lesson.args.integer("seq", 0, "with --model: tokens per sequence (0: the model's context)", 0, 1 << 24);
  const std::string recipe = lesson.args.choice("recipe", "fp32", "with --model: number formats",
                                                {std::begin(kRecipes), std::end(kRecipes)});
  std::vector<std::string> pictures;
  if (model.empty()) pictures = {lesson.plot("04_batch_memory.svg"), lesson.plot("04_batch_speed.svg")};
  lesson.done({}, pictures);
  if (model.empty() && (batch != 1 || seq != 0 || recipe != "fp32"))
    throw BadArguments(
        "--batch, --seq and --recipe belong to the memory calculator, which needs --model=NAME");
  if (lesson.print == "example") return bytes_by_hand(std::cout), 0;
  LessonContext context(lesson, model.empty() ? lesson.device : "meta", model.empty() ? lesson.memory : 0);
  Report report = lesson.report();
  if (!model.empty()) {
    calculate(report, model, recipe, batch, seq, lesson.memory);
    return lesson.finish(report);
  }
  const Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  walk_through(lesson, set, report);
  bytes_per_parameter_table(lesson, report);
  saved_activations_table(lesson, report);
  batch_size_table(lesson, set.model, std::clamp<int64_t>(lesson.steps, 2, 5),
                   lesson.memory > 0 ? lesson.memory : set.budget, report);
  generation_table(lesson, set.model, report);
  print_caches_of_models();
  calculator_table();
  print_published(report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_04(argc, argv); });
}
