// Lesson 03, a transformer trained on text. The default text is generated from a small grammar, so the
// probability of every byte is known. No model can have a lower expected loss than the mean -log p of the
// text (the entropy floor); the loss of this model comes close to it.
//
// Memory in fp32, bytes per parameter: 4 for weights, 4 for gradients, 8 for AdamW's two states; and the
// activations that the tape saves. Work: 6 N + 12 L C T FLOPs per token.
//
//   make lesson-03 [ARGS="--data=/usr/share/common-licenses"]              expected last line: PASS
#include <iostream>

#include "lessons/03_transformer/by_hand.h"
#include "lessons/03_transformer/checks.h"
#include "src/core/progress.h"
#include "src/io/save_load.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"
#include "src/train/text.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{
      .vocab = ByteTokenizer::kVocabulary, .context = 64, .layers = 4, .heads = 4, .channels = 128};
  int64_t batch = 8, warmup = 100;
  double learning_rate = 2e-3, last_rate = 1e-4, weight_decay = 0.1, max_norm = 1.0;
  int64_t text_bytes = 1'200'000, sample_bytes = 400;
  bool nears_floor = true;  // within the default number of steps
};
static Settings tiny() {
  Settings set{.batch = 4, .text_bytes = 60'000, .sample_bytes = 100, .nears_floor = false};
  set.model.context = 32, set.model.layers = 2, set.model.channels = 32;
  return set;
}

static StepRecorder train(const Lesson& lesson, const Settings& set, const Loader& loader,
                          Transformer& model) {
  Device& device = current().device;
  AdamW optimizer(model.parameters, {.beta2 = 0.99f, .weight_decay = float(set.weight_decay)});
  Tensor inputs(device, {set.batch, set.model.context}, DType::I32, Kind::Data, "inputs");
  Tensor targets(device, {set.batch, set.model.context}, DType::I32, Kind::Data, "targets");
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
    optimizer.clip_grad_norm(set.max_norm);
    optimizer.step(warmup_cosine(step, set.warmup, lesson.steps, set.learning_rate, set.last_rate));
    recorder.end(loss_value);
    progress.step(step + 1, loss_value);
  }
  return recorder;
}

static void describe(Report& report, const Lesson& lesson, const Settings& set, const StepRecorder& run,
                     double held_out, std::optional<double> floor) {
  const int64_t N = set.model.parameter_count(), tokens = set.batch * set.model.context;
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  report.config("heads", set.model.heads);
  report.config("vocabulary", set.model.vocab);
  report.config("losses", "nats per byte");
  ReportRow& row = report.row("gpt");
  run.fill(row, tokens);
  row.model_flops = set.model.flops_per_token() * tokens;
  row.loss_held_out = held_out;
  row.extra = {{"fraction of peak GEMM rate",
                double(*row.model_flops) / (*row.ms_per_step * 1e-3) / measure_gemm_peak(current().device)}};
  if (floor) row.extra.emplace_back("entropy floor", *floor);
  report.predict_time(lesson.steps);

  check_trained({run, N, current().device.meter().now()[Kind::Gradient], held_out, floor, set.nears_floor},
                report);
}

static int lesson_03(int argc, char** argv) {
  Lesson lesson(argc, argv, "03_transformer", "train a small GPT on text", 3000);
  const std::string save = lesson.args.text("save", "", "write the trained weights to this safetensors file");
  const std::string data =
      lesson.args.text("data", "", "a file or folder of text (default: text generated from the grammar)");
  const std::string size = lesson.args.choice(
      "size", "small", "size of the model and of the text; tiny is for emulated devices", {"small", "tiny"});
  const std::string picture = lesson.device == "meta" ? "" : lesson.plot("03_loss.svg");
  lesson.done({save}, {picture});
  if (lesson.print == "example") return attention_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const Settings set = size == "tiny" ? tiny() : Settings();

  // The text and its entropy floor, which is known only for text from the grammar.
  const Text text = load_text(data, set.text_bytes, lesson.seed);
  const Loader loader(text.corpus, set.model.context, lesson.seed);
  print_sizes(text.corpus, loader);
  Transformer model(set.model);
  model.initialize(lesson.seed);

  const StepRecorder run = train(lesson, set, loader, model);
  if (!save.empty()) save_weights(save, model.parameters);
  double held_out = NAN;
  if (context.device.has_data()) {
    held_out = held_out_loss(model, loader, set.batch);
    std::cout << "\nSampled text (temperature 0.8):\n"
              << printable(sample_text(model, text.prompt, set.sample_bytes, 0.8, lesson.seed)) << "\n";
    draw_curve(run.losses, held_out, text.floor, picture);
  }
  Report report = lesson.report();
  describe(report, lesson, set, run, held_out, text.floor);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_03(argc, argv); });
}
