// Lesson 14, data loading. While a step computes, worker threads make the next batches: they encode text into
// tokens (byte pairs) and write the tokens to pinned memory, and a copy queue copies each batch to the
// device. So a step does not wait. Its samples depend only on (seed, step), not on the number of workers.
//
// Waiting time of a step: without workers, t_make; with W workers, max(0, t_make / W - t_step).
//
//   make lesson-14                                                          expected last line: PASS
#include <algorithm>
#include <iostream>

#include "lessons/14_data_loading/bits.h"
#include "lessons/14_data_loading/by_hand.h"
#include "lessons/14_data_loading/learned.h"
#include "lessons/14_data_loading/waiting.h"
#include "src/core/progress.h"
#include "src/optim/optimizer.h"
#include "src/train/step_recorder.h"
#include "src/train/text.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{.context = 64, .layers = 2, .heads = 4, .channels = 64};
  int64_t batch = 16, text_bytes = 400'000, timed_steps = 30, rounds = 3;
  double dropout = 0.1;  // of merges
};
static Settings for_emulation() {
  Settings set{.batch = 2, .text_bytes = 20'000, .timed_steps = 4, .rounds = 1};
  set.model.context = 8, set.model.layers = 1, set.model.channels = 16;
  return set;
}

static TransformerConfig model_for(const Settings& set, int64_t vocabulary) {
  TransformerConfig config = set.model;
  config.vocab = vocabulary;
  return config;
}

// Trains on batches that workers make ahead. After `restart_after` steps a new loader replaces the old one
// and continues at its position.
static LoadedRun train_ahead(const Lesson& lesson, const Settings& set, const TextSamples& samples,
                             const Place& place, int64_t workers, int64_t restart_after) {
  LessonContext context(lesson);
  Transformer model(model_for(set, samples.pairs().vocabulary()));
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  const SampleOrder order(samples.count(), lesson.seed);
  const auto from = [&](int64_t position) {
    const Share share{.batch = set.batch, .position = position};
    return std::make_unique<BatchLoader>(
        set.batch, set.model.context, workers,
        from_place(read_samples(samples, order, share, workers, set.dropout, lesson.seed), place));
  };
  std::unique_ptr<BatchLoader> batches = from(0);
  StepRecorder recorder;
  std::vector<double> waited;
  for (int64_t step = 0; step < set.timed_steps; ++step) {
    if (step == restart_after) batches = from(step * set.batch);
    recorder.begin();
    const double begin = seconds_now();
    const TokenBatch& batch = batches->next();
    waited.push_back(seconds_now() - begin);
    Tape tape;
    const Tensor loss = model.loss(batch.inputs, batch.targets);
    if (step == 0 && lesson.print == "tape" && restart_after > 0) tape.print(std::cout);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
    recorder.end(item(loss));
  }
  return {recorder.losses, recorder.seconds, waited, recorder.peak, batches->host().meter().at_peak()};
}

// Trains on windows of a text that was encoded before.
static ReportRow train_on(const Lesson& lesson, const Settings& set, const TextModel& text) {
  LessonContext context(lesson);
  Transformer model(model_for(set, text.tokens.vocabulary()));
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  const Loader loader(text.tokens, set.model.context, lesson.seed);
  Tensor inputs(context.device, {set.batch, set.model.context}, DType::I32, Kind::Data, "inputs");
  Tensor targets(context.device, {set.batch, set.model.context}, DType::I32, Kind::Data, "targets");
  StepRecorder recorder;
  Progress progress(text.name, text.steps);
  for (int64_t step = 0; step < text.steps; ++step) {
    recorder.begin();
    read_batch(loader, step, inputs, targets);
    Tape tape;
    const Tensor loss = model.loss(inputs, targets);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(warmup_cosine(step, text.steps / 10, text.steps, 3e-3, 1e-4));
    recorder.end(item(loss));
    progress.step(step + 1, recorder.losses.back());
  }
  ReportRow row;
  row.name = "GPT on " + text.name;
  if (!context.device.has_data()) return row;
  recorder.fill(row, set.batch * set.model.context);
  row.peak = std::nullopt, row.reserved_bytes = std::nullopt;
  row.loss_held_out = held_out_loss(model, loader, set.batch);
  return row;
}

static int lesson_14(int argc, char** argv) {
  Lesson lesson(argc, argv, "14_data_loading", "data loading: batches that are ready when a step needs them",
                300);
  const std::string data = lesson.args.text("data", "", "a text file (none: text from the grammar)");
  const std::string tokens = lesson.args.text(
      "tokens", "512", "size of the vocabulary to learn from the text, or folder of a tokenizer's files");
  const std::string save = lesson.args.text(
      "save", "", "folder for the tokenizer's files (merges.txt, vocab.json, tokenizer.json)");
  const std::string made = lesson.plot("14_text.txt"), picture = lesson.plot("14_waiting.svg");
  lesson.done({}, {made, picture});
  if (lesson.print == "example") return byte_pairs_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const bool has_data = context.device.has_data();
  const Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  const LessonText text = map_text(data, made, set.text_bytes, lesson.seed);
  const BytePairs pairs = byte_pairs_for(text, tokens);
  if (!save.empty()) save_byte_pairs(pairs, save);
  Report report = lesson.report();
  report.config(model_for(set, pairs.vocabulary()), set.batch);
  report.config("steps", lesson.steps);
  report_byte_pairs(pairs, text, report);

  const std::vector<TextModel> models = text_models(text, pairs, lesson.steps);
  const TextSamples samples = samples_of(text, pairs, set.model.context, models.back().bytes_per_token);
  const LoadedLoop loop = [&](const Place& place, int64_t workers, int64_t restart_after) {
    return train_ahead(lesson, set, samples, place, workers, restart_after);
  };
  const std::vector<Waiting> waiting = measure_waiting(loop, has_data ? set.rounds : 1);
  report_waiting(waiting, 2 * set.batch * set.model.context * size_of(DType::I32), has_data ? picture : "",
                 report);
  const LoadedRun restarted = loop(waiting[0].place, 2, set.timed_steps / 2);
  check_restart(restarted.losses, waiting[0].last.losses, report);
  report_sharing(samples.count(), lesson.seed, report);
  std::vector<ReportRow> rows;
  for (const TextModel& m : models) rows.push_back(train_on(lesson, set, m));
  report_bits(models, rows, text.floor, needs_steps(300, lesson.steps), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_14(argc, argv); });
}
