#include "lessons/09_mixed_precision/batches.h"

#include <iostream>

#include "src/core/table.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/formulas.h"
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
  // BEGIN SOLUTION 09.3
  const int64_t more = N * (bytes_per_parameter(mixed.precision, 2) - bytes_per_parameter(fp32.precision, 2));
  const int64_t less = fp32.layers * (saved_by_a_layer(fp32, 1, T) - saved_by_a_layer(mixed, 1, T));
  batch = (more + less - 1) / less;
  // STUB: todo("09.3", "more bytes for parameters, fewer bytes per sequence, and the batch", mixed, N, T);
  // END SOLUTION 09.3
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

BatchCosts batch_costs(const Lesson& lesson, const TransformerConfig& config) {
  BatchCosts costs{config.parameter_count(), predicted_crossing(config), measured_crossing(config), {}};
  for (const int64_t batch : {int64_t(1), costs.predicted - 1, costs.predicted, 4 * costs.predicted}) {
    const StepCost fp32 = step_cost(lesson, config, "fp32", batch);
    costs.batches.push_back({batch, fp32, step_cost(lesson, config, "mixed", batch)});
  }
  return costs;
}

void batches_table(const BatchCosts& costs, Report& report) {
  Table table({"batch", "peak, fp32", "peak, mixed", "peak, mixed / fp32", "ms/step, fp32", "ms/step, mixed",
               "time, mixed / fp32"});
  const bool timed = current().device.has_data();
  const auto time = [&](double x) { return timed ? number_text(x) : "-"; };
  const auto memory = [](const BatchCosts::Batch& b) { return double(b.mixed.bytes) / double(b.fp32.bytes); };
  for (const BatchCosts::Batch& b : costs.batches)
    table.row({std::to_string(b.size), bytes_text(b.fp32.bytes), bytes_text(b.mixed.bytes),
               number_text(memory(b)), time(b.fp32.seconds * 1e3), time(b.mixed.seconds * 1e3),
               time(b.mixed.seconds / b.fp32.seconds)});
  std::cout << "\n(e) Peak memory and time of a step by batch size: a wide model of " << costs.parameters
            << " parameters (times depend on the processor's bf16 instructions)\n\n"
            << table << "\nsmallest batch at which mixed needs no more memory than fp32: " << costs.predicted
            << " predicted, " << costs.measured << " measured\n";
  const BatchCosts::Batch &one = costs.batches.front(), &most = costs.batches.back();
  report.check_at_most(
      "(e) smallest batch at which mixed needs no more memory than fp32: predicted - measured",
      double(std::abs(costs.predicted - costs.measured)), 1);
  report.check_at_least("(e) smallest batch of the table: peak memory, mixed / fp32", memory(one), 1);
  report.check_at_most("(e) largest batch of the table: peak memory, mixed / fp32", memory(most), 1);
  if (timed)
    report.timing_at_least("(e) largest batch of the table: time, fp32 / mixed",
                           most.fp32.seconds / most.mixed.seconds, 1.3);
}

}  // namespace gradus
