// Lesson 16, fusion and graphs.
//
//   make lesson-16                                                          expected last line: PASS
#include <iostream>

#include "lessons/16_fusion_and_graphs/fused_gpt.h"
#include "lessons/16_fusion_and_graphs/head.h"
#include "lessons/16_fusion_and_graphs/pairs.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/step_recorder.h"

using namespace gradus;

struct Settings {
  PairSize pairs{.rows = 4096, .channels = 768, .vocab = 0};
  HeadSize head{.rows = 1024, .channels = 768, .vocab = 50257};
  std::vector<int64_t> at_a_time{0, 64, 128, 256, 512};
  TransformerConfig model{.vocab = 4096, .context = 256, .layers = 4, .heads = 4, .channels = 256};
  int64_t batch = 4;
};

static std::vector<double> train(const Lesson& lesson, const Settings& set, bool fused, ReportRow& row) {
  const LessonContext own(lesson);
  TransformerConfig config = set.model;
  config.attention = attention_flash;
  Transformer model(config);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  StepRecorder recorder;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    recorder.begin();
    const DummyBatch batch = dummy_batch(config, set.batch, config.context, uint64_t(step + 1));
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = fused ? fused_loss(model, batch.ids, batch.targets, 256) : batch.loss(model);
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
    recorder.end(item(loss));
  }
  recorder.fill(row, set.batch * config.context);
  if (!current().device.has_data()) row.ms_per_step = row.tokens_per_s = std::nullopt;
  return recorder.losses;
}

static int lesson_16(int argc, char** argv) {
  Lesson lesson(argc, argv, "16_fusion_and_graphs", "fused kernels and captured steps", 10);
  lesson.done();
  const LessonContext context(lesson);
  const Settings set;
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  report_pairs(compare_pairs(lesson, set.pairs), set.pairs, report);
  report_heads(run_heads(lesson, set.head, set.at_a_time), set.head, report);
  TransformerConfig gpt2 = transformer_config("gpt2");
  gpt2.attention = attention_flash;
  report_model_peaks(lesson, gpt2, 4, 256, report);
  const std::vector<double> apart = train(lesson, set, false, report.row("GPT"));
  const std::vector<double> fused = train(lesson, set, true, report.row("GPT, fused"));
  report.check_at_most("difference of losses", largest_difference(apart, fused), 1e-4);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_16(argc, argv); });
}
