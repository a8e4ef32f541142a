// Lesson 03, a transformer trained on text. The default text is generated from a small grammar, so the
// probability of every byte is known: no model can have a lower loss than -log p of the held-out text, and
// this one comes near it.
//
// Memory, fp32: 4 bytes a parameter for weights, 4 for gradients, 8 for AdamW's two states, and the
// activations that the tape saved. Work: 6 N + 12 L C T FLOPs a token.
//
//   make lesson-03 [ARGS="--data=/usr/share/common-licenses"]              expected last line: PASS
#include <cmath>
#include <iostream>

#include "lessons/03_transformer/text.h"
#include "src/core/progress.h"
#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/io/checkpoint.h"
#include "src/io/png.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{
      .vocab = ByteTokenizer::kVocabulary, .context = 64, .layers = 4, .heads = 4, .channels = 128};
  int64_t batch = 8, warmup = 100;
  double learning_rate = 2e-3, last_rate = 1e-4, weight_decay = 0.1, max_norm = 1.0;
};

static int lesson_03(int argc, char** argv) {
  Lesson lesson(argc, argv, "03_transformer", "train a small GPT on text", 3000);
  const std::string weights =
      lesson.args.text("save", "", "write the trained weights to this file (safetensors)");
  const std::string data =
      lesson.args.text("data", "", "a file or folder of text (none: text from the grammar)");
  lesson.args.done();
  Context context(lesson.device, lesson.seed, lesson.memory);
  lesson.apply(context);
  Meter& meter = context.device.meter();
  const Settings set;
  const int64_t B = set.batch, T = set.model.context;

  // The text, and the lowest loss that is possible on its held-out part (known only for the grammar's text).
  const Text text = load_text(data, lesson.seed);
  std::cout << text.corpus.summary << "\n";
  const Loader loader(text.corpus, T, lesson.seed);

  Transformer model(set.model);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters, {.beta2 = 0.99f, .weight_decay = float(set.weight_decay)});
  Tensor inputs(context.device, {B, T}, DType::I32, Kind::Data, "inputs");
  Tensor targets(context.device, {B, T}, DType::I32, Kind::Data, "targets");

  Curve curve;
  std::vector<double> step_seconds;
  int64_t requests_after_2 = 0, flops = 0;
  Progress progress("training", lesson.steps);
  for (int64_t step = 0; step < lesson.steps; ++step) {
    const double start = seconds_now();
    meter.reset_work();
    read_batch(loader, step, inputs, targets);
    Tape tape;
    const Tensor loss = model.loss(inputs, targets);
    if (step == 0 && lesson.print == "tape") tape.print(std::cout);
    curve.add(step, item(loss));
    model.parameters.zero_grad();
    tape.backward(loss);
    clip_grad_norm(model.parameters, set.max_norm);
    optimizer.step(warmup_cosine(step, set.warmup, lesson.steps, set.learning_rate, set.last_rate));
    step_seconds.push_back(seconds_now() - start);
    flops = meter.flops();
    if (step == 1) requests_after_2 = meter.device_requests();
    progress.step(step + 1, curve.loss.back());
  }
  progress.done();
  const int64_t requests_at_end = meter.device_requests();
  const Usage peak = meter.at_peak();

  const double held_out = held_out_loss(model, loader, B);
  std::cout << "\nA sample (temperature 0.8):\n"
            << printable(sample_text(model, text.prompt, 400, 0.8, lesson.seed)) << "\n";
  if (!weights.empty()) save_weights(weights, model.parameters);
  draw_curve(curve, held_out, text.floor, lesson.plot("03_loss.png"));

  Report report = lesson.report();
  report.config("parameters", model.parameters.numel());
  report.config("layers", set.model.layers);
  report.config("channels", set.model.channels);
  report.config("context", T);
  report.config("batch", B);
  report.config("steps", lesson.steps);
  ReportRow& row = report.row("gpt");
  const double step_s = summarize(step_seconds).median, gemm_peak = measure_gemm_peak(context.device);
  const int64_t N = model.parameters.numel(), model_flops = set.model.flops_per_token() * B * T;
  row.ms_per_step = step_s * 1e3;
  row.tokens_per_s = double(B * T) / step_s;
  row.model_flops = model_flops;
  row.loss_first = curve.loss.front();
  row.loss_last = curve.recent();
  row.loss_held_out = held_out;
  row.peak = peak;
  row.reserved_bytes = meter.peak_reserved();
  row.extra = {{"share of GEMM peak", double(model_flops) / step_s / gemm_peak},
               {"kernel FLOPs", double(flops)}};
  if (text.floor) row.extra.emplace_back("floor", *text.floor);

  report.check_equal("weights: 4 bytes a parameter", peak[Kind::Weight], 4 * N);
  report.check_equal("gradients: 4 bytes a parameter", peak[Kind::Gradient], lesson.steps > 1 ? 4 * N : 0);
  report.check_equal("AdamW: 8 bytes a parameter", peak[Kind::Optimizer], 8 * N);
  report.check_equal("requests to the device after step 2", requests_at_end - requests_after_2, 0);
  report.check_at_most("loss fell", curve.recent(), curve.loss.front());
  if (text.floor && lesson.steps >= 3000) {
    report.check_at_most("held-out loss ÷ floor", held_out / *text.floor, 1.05);
    report.check_at_least("no model beats the floor", held_out / *text.floor, 0.99);
  }
  return report.finish(lesson.json);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_03(argc, argv); });
}
