// Lesson 10, quantization. Each number is stored as a code of 8 or 4 bits: the code of the nearest value in a
// small codebook, times a scale that the numbers of a block share. An outlier makes the scale of its block
// large, so it harms fewer numbers if blocks are small. quantize_block in formats.cpp is the technique in
// plain loops.
//
// Memory: NF4 in blocks of 64 takes 4.5 bits per number, because of the scales a little more than an eighth
// of fp32.
//
//   make lesson-10                                                          expected last line: PASS
#include <iostream>

#include "lessons/10_quantization/picture.h"
#include "lessons/10_quantization/tables.h"
#include "src/core/progress.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"
#include "src/train/step_recorder.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{
      .vocab = ByteTokenizer::kVocabulary, .context = 64, .layers = 2, .heads = 4, .channels = 128};
  int64_t batch = 8, text_bytes = 600'000, numbers = 4096, picture = 128;
  double learning_rate = 4e-3;
};
static Settings for_emulation() {
  Settings set{.batch = 2, .text_bytes = 20'000, .picture = 32};
  set.model.context = 16, set.model.layers = 1, set.model.channels = 16;
  return set;
}

// Trains the model as lesson 03 does.
static void train(const Lesson& lesson, const Settings& set, const Loader& loader, Transformer& model,
                  ReportRow& row) {
  Device& device = current().device;
  AdamW optimizer(model.parameters, {.beta2 = 0.99f, .weight_decay = 0.1f});
  const Shape batch{set.batch, set.model.context};
  Tensor inputs(device, batch, DType::I32, Kind::Data, "inputs"),
      targets(device, batch, DType::I32, Kind::Data, "targets");
  StepRecorder recorder;
  Progress progress("training", lesson.steps);
  for (int64_t step = 0; step < lesson.steps; ++step) {
    recorder.begin();
    read_batch(loader, step, inputs, targets);
    Tape tape;
    const Tensor loss = model.loss(inputs, targets);
    if (step == 0 && lesson.print == "tape") tape.print(std::cout);
    const double loss_value = item(loss);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(warmup_cosine(step, lesson.steps / 20, lesson.steps, set.learning_rate, 1e-4));
    recorder.end(loss_value);
    progress.step(step + 1, loss_value);
  }
  recorder.fill(row, batch.numel());
}

static int lesson_10(int argc, char** argv) {
  Lesson lesson(argc, argv, "10_quantization", "numbers as codes of 8 and 4 bits", kWholeRun);
  std::vector<std::string> pictures;
  if (lesson.device != "meta") pictures = {lesson.plot("10_ball.png"), lesson.plot("10_loss.svg")};
  lesson.done({}, pictures);
  if (lesson.print == "example") return quantization_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  const Text text = load_text("", set.text_bytes, lesson.seed);
  const Loader loader(text.corpus, set.model.context, lesson.seed);
  print_sizes(text.corpus, loader);
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  Transformer model(set.model);
  model.initialize(lesson.seed);
  const Tensor& table = model.parameters.begin()->value;
  const Quantizer nf4(context.device, format_of("NF4, blocks"));
  check_nf4(nf4_difference(), nf4.quantize(table).bytes(), table.numel(), report);
  ReportRow& row = report.row("training");
  train(lesson, set, loader, model, row);
  if (context.device.has_data()) {
    const std::vector<float> weights = matrices_of(model);
    error_table(measure_errors(set.numbers, lesson.seed, weights), set.numbers, weights.size(), report);
    const std::vector<float> normal = normal_numbers(set.numbers, lesson.seed);
    share_table(code_shares(nf4.format(), normal), set.numbers, report);
    const QuantFormat absmax = format_of("absmax, blocks");
    check_plain(plain_error(absmax, normal), measure(absmax, normal).error, report);
    const std::vector<Quality> all = evaluate_formats(model, loader, set.batch);
    row.loss_held_out = all.front().loss;
    loss_table(all, model.parameters.numel(), lesson.steps, report);
    write_panels(panels(int(set.picture)), int(set.picture), pictures[0]);
    draw_qualities(all, pictures[1]);
  }
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_10(argc, argv); });
}
