// Lesson 10, quantization. A number becomes a code of 8 or 4 bits: the nearest value of a small book, times a
// scale that many numbers share. The fewer share one, the less harm does a large number do to the others.
//
// Memory of a number: NF4 in blocks of 64 takes 4.5 bits, an eighth of fp32 and a bit more for scales.
//
//   make lesson-10                                                          expected last line: PASS
#include <cmath>
#include <iostream>
#include <map>

#include "lessons/10_quantization/evaluate.h"
#include "lessons/10_quantization/formats.h"
#include "lessons/10_quantization/picture.h"
#include "src/core/progress.h"
#include "src/core/table.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"
#include "src/train/step_recorder.h"

using namespace gradus;

constexpr int64_t kSteps = 1500;
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

// As in lesson 03.
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

// (a) What each format does to normally distributed numbers, to the same with one that is 100, and to the
// weights of the trained model.
static void damage_table(const Settings& set, uint64_t seed, const std::vector<float>& weights,
                         Report& report) {
  const std::vector<float> normal = normal_numbers(set.numbers, seed);
  std::vector<float> outlier = normal;
  outlier[outlier.size() / 2] = 100;
  Table table({"format", "bits a number", "codes used", "error, normal", "with an outlier", "of weights"});
  std::map<std::string, double> error, with_outlier;
  for (const std::string& name : format_names()) {
    const QuantFormat format = format_of(name, normal);
    const Damage a = damage(format, normal), b = damage(format_of(name, outlier), outlier),
                 c = damage(format_of(name, weights), weights);
    table.row({name, number_text(8 * double(a.bytes) / double(set.numbers)), percent_text(a.codes_used),
               percent_text(a.error), percent_text(b.error), percent_text(c.error)});
    report.check_equal(name + ": bytes of " + count_text(set.numbers) + " numbers", a.bytes,
                       predicted_bytes(format, set.numbers));
    error[name] = a.error, with_outlier[name] = b.error;
  }
  std::cout << "\n(a) What comes back of " << set.numbers << " numbers, and of " << weights.size()
            << " trained weights\n\n"
            << table;
  report.check_at_most("error with an outlier, blocks beside all in one",
                       with_outlier["absmax, blocks"] / with_outlier["absmax"], 0.1);
  report.check_at_most("error of NF4 beside FP4, normal numbers", error["NF4, blocks"] / error["FP4, blocks"],
                       0.95);
}

static void loss_table(const Lesson& lesson, const std::vector<Quality>& all, int64_t parameters,
                       Report& report) {
  Table table({"format", "weights", "bits a weight", "held out", "worse by"});
  std::map<std::string, double> worse;
  for (const Quality& q : all) {
    const double change = q.loss / all.front().loss - 1;
    worse[q.format] = std::abs(change) < 5e-4 ? 0 : change;  // no sign before 0.0 %
    table.row({q.format, bytes_text(q.bytes), number_text(8 * double(q.bytes) / double(parameters)),
               number_text(q.loss), percent_text(worse[q.format])});
  }
  std::cout << "\n(b) The trained model, its matrices quantized\n\n" << table;
  if (lesson.steps != kSteps) return;  // the bounds are meant for a model that was trained so long
  const std::string text = ": held-out loss, worse than fp32's by";
  report.check_at_least("range of fp16" + text, worse["range of fp16"], 1);
  for (const char* name : {"absmax, blocks", "dynamic, blocks"})
    report.check_at_most(name + text, worse[name], 0.005);
  report.check_at_most("NF4, blocks" + text, worse["NF4, blocks"], 0.15);
  report.check_at_most("NF4 beside FP4: what it costs", worse["NF4, blocks"] / worse["FP4, blocks"], 1);
}

static int lesson_10(int argc, char** argv) {
  Lesson lesson(argc, argv, "10_quantization", "numbers as codes of 8 and 4 bits", kSteps);
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
  report.check_at_most("NF4: published values beside quantiles made anew", nf4_difference(), 2e-7);
  const Tensor& table = model.parameters.begin()->value;
  const Quantizer nf4(context.device, format_of("NF4, blocks"));
  report.check_equal("NF4: bytes of the token embeddings", nf4.quantize(table).bytes(),
                     predicted_bytes(nf4.format(), table.numel()));
  ReportRow& row = report.row("training");
  train(lesson, set, loader, model, row);
  if (context.device.has_data()) {
    damage_table(set, lesson.seed, matrices_of(model), report);
    const std::vector<Quality> all = evaluate_formats(model, loader, set.batch);
    row.loss_held_out = all.front().loss;
    loss_table(lesson, all, model.parameters.numel(), report);
    write_panels(panels(int(set.picture)), int(set.picture), pictures[0]);
    draw_qualities(all, pictures[1]);
  }
  return report.finish(lesson.json);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_10(argc, argv); });
}
