#include "lessons/09_mixed_precision/batches.h"

#include <iostream>

#include "lessons/04_memory_anatomy/formulas.h"
#include "src/core/table.h"
#include "src/data/dummy.h"
#include "src/optim/optimizer.h"
#include "src/train/memory_need.h"
#include "src/train/step_recorder.h"

namespace gradus {

static TransformerConfig in_recipe(TransformerConfig config, const std::string& recipe) {
  config.precision = precision_recipe(recipe);
  return config;
}

StepCost step_cost(const Lesson& lesson, const TransformerConfig& fp32, const std::string& recipe,
                   int64_t batch) {
  const LessonContext own(lesson, lesson.device, 0);
  const TransformerConfig config = in_recipe(fp32, recipe);
  Transformer model(config);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  const DummyBatch data = dummy_batch(config, batch, config.context);
  StepRecorder recorder;
  for (int step = 0; step < 3; ++step) {
    recorder.begin();
    model.parameters.zero_grad();
    Tape tape;
    tape.backward(data.loss(model));
    optimizer.step(1e-3);
    recorder.end();
  }
  return {recorder.peak.allocated(), summarize(recorder.seconds).min};
}

int64_t predicted_crossing(const TransformerConfig& fp32) {
  const TransformerConfig mixed = in_recipe(fp32, "mixed");
  const int64_t N = fp32.parameter_count(), T = fp32.context;
  int64_t batch = 0;
  // BEGIN SOLUTION 09.6
  const int64_t more = N * (bytes_per_parameter(mixed.precision, 2) - bytes_per_parameter(fp32.precision, 2));
  const int64_t less = fp32.layers * (saved_by_a_layer(fp32, 1, T) - saved_by_a_layer(mixed, 1, T));
  batch = (more + less - 1) / less;
  // STUB: todo("09.6", "bytes more for the parameters, bytes less for a sequence, and the batch", mixed, N, T);
  // END SOLUTION 09.6
  return batch;
}

int64_t measured_crossing(const TransformerConfig& config) {
  const auto bytes = [&](const std::string& recipe, int64_t batch) {
    return memory_need({in_recipe(config, recipe), batch, config.context}).peak.usage.allocated();
  };
  int64_t batch = 1;
  while (bytes("mixed", batch) > bytes("fp32", batch)) ++batch;
  return batch;
}

void batches_table(const Lesson& lesson, const TransformerConfig& config, Report& report) {
  Table table({"batch", "fp32", "mixed, bf16", "memory", "fp32, ms", "mixed, ms", "time"});
  const bool timed = current().device.has_data();
  const auto time = [&](double x) { return timed ? number_text(x) : "-"; };
  const int64_t crossing = predicted_crossing(config), measured = measured_crossing(config);
  std::vector<StepCost> all;  // fp32 and mixed by turns
  for (const int64_t batch : {int64_t(1), crossing / 2, crossing, 4 * crossing}) {
    for (const char* recipe : {"fp32", "mixed"}) all.push_back(step_cost(lesson, config, recipe, batch));
    const StepCost mixed = all.back(), fp32 = all[all.size() - 2];
    table.row({std::to_string(batch), bytes_text(fp32.bytes), bytes_text(mixed.bytes),
               number_text(double(mixed.bytes) / double(fp32.bytes)), time(fp32.seconds * 1e3),
               time(mixed.seconds * 1e3), time(mixed.seconds / fp32.seconds)});
  }
  std::cout << "\n(e) A step by batch size, " << config.parameter_count() << " parameters\n\n"
            << table << "\nMixed precision needs no more memory: by the formula from a batch of " << crossing
            << " on; measured: from " << measured << " on\n";
  report.check_at_most("batch where mixed precision needs no more: formula - measured",
                       double(std::abs(crossing - measured)), 1);
  report.check_at_least("batch 1: bytes, mixed / fp32", double(all[1].bytes) / double(all[0].bytes), 1);
  report.check_at_most("four times that batch: bytes, mixed / fp32",
                       double(all[7].bytes) / double(all[6].bytes), 1);
  if (timed)
    report.timing_at_least("four times that batch: time, fp32 / mixed", all[6].seconds / all[7].seconds, 1.3);
}

}  // namespace gradus
