// Lesson 15, flash attention. T queries and T keys have T x T scores, but each score is used only once. So a
// tile of scores is computed on chip, is added to an online softmax, and is discarded. The backward pass
// recomputes the attention weights from the log-sum-exp of each query.
//
// Saved for backward: attention_plain saves B H T T attention weights; attention_flash saves B H T
// log-sum-exps and its output.
//
//   make lesson-15                                                          expected last line: PASS
#include <iostream>

#include "lessons/15_flash_attention/compare.h"
#include "lessons/15_flash_attention/one_head.h"
#include "lessons/15_flash_attention/traffic.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/step_recorder.h"

using namespace gradus;

struct Settings {
  std::vector<int64_t> lengths{256, 512, 1024, 2048, 4096, 8192};
  int64_t longest_plain = 4096;
  AttentionSize size{.B = 1, .T = 512, .heads = 8, .D = 64};
  AttentionSize counted{.B = 1, .T = 0, .heads = 1, .D = 64};  // on emu; T: counted_lengths
  std::vector<int64_t> counted_lengths{64, 128, 256, 512, 1024};
  TransformerConfig model{.vocab = 256, .context = 1024, .layers = 2, .heads = 8, .channels = 256};
  int64_t batch = 1;

  // Every length with H KV heads; then T = size.T with H / 2 and with H / 8 KV heads.
  std::vector<AttentionSize> sizes() const {
    std::vector<AttentionSize> all;
    for (const int64_t T : lengths) all.push_back(size), all.back().T = T;
    for (const int64_t group : {2, 8}) all.push_back(size), all.back().heads.kv = size.heads.q / group;
    return all;
  }
};
static Settings for_emulation() {
  Settings set{.lengths = {16, 32, 64}, .longest_plain = 32, .counted_lengths = {32, 64}};
  set.size.T = 32, set.size.D = 16;
  set.model.context = 16, set.model.layers = 1, set.model.heads = 2, set.model.channels = 16;
  return set;
}

static Trained train(const Lesson& lesson, const Settings& set, AttentionOp attention, ReportRow& row) {
  const LessonContext own(lesson);
  TransformerConfig config = set.model;
  config.attention = attention;
  Transformer model(config);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  StepRecorder recorder;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    recorder.begin();
    const DummyBatch batch = dummy_batch(config, set.batch, config.context, uint64_t(step + 1));
    Tape tape;
    const Tensor loss = batch.loss(model);
    if (step == 0 && lesson.print == "tape") tape.print(std::cout);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
    recorder.end(item(loss));
  }
  recorder.fill(row, set.batch * config.context);
  if (!current().device.has_data()) row.ms_per_step = row.tokens_per_s = std::nullopt;
  return {recorder.losses, recorder.peak[Kind::Activation]};
}

static int lesson_15(int argc, char** argv) {
  Lesson lesson(argc, argv, "15_flash_attention",
                "flash attention: T x T scores, computed tile by tile and never stored", 10);
  const std::string picture = lesson.plot("15_saved.svg");
  lesson.done({}, {picture});
  if (lesson.print == "example") return online_softmax_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const bool has_data = context.device.has_data();
  const Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("heads", set.model.heads);
  report.config("steps", lesson.steps);
  report_programs(run_programs(lesson.seed), report);
  if (has_data) report_moves(count_moves(lesson, set.counted, set.counted_lengths), report);
  report_compared(compare(lesson, set.sizes(), set.longest_plain), has_data ? picture : "", report);
  if (has_data) report_errors(set.size, measure_errors(lesson, set.size), report);
  const Trained plain = train(lesson, set, attention_plain, report.row("GPT, plain"));
  const Trained flash = train(lesson, set, attention_flash, report.row("GPT, flash"));
  check_training(set.model, set.batch, plain, flash, report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_15(argc, argv); });
}
