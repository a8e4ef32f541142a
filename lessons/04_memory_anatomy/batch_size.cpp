#include "lessons/04_memory_anatomy/batch_size.h"

#include <iostream>

#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/step_recorder.h"

namespace gradus {

static BatchTrial try_batch(Transformer& model, AdamW& optimizer, int64_t batch, int64_t steps) {
  Device& device = current().device;
  device.allocator().empty_cache();
  device.meter().reset_peak();
  StepRecorder recorder;
  try {
    for (int64_t step = 0; step < steps; ++step) {
      recorder.begin();
      const DummyBatch data = dummy_batch(model.config, batch, model.config.context);
      Tape tape;
      const Tensor loss = data.loss(model);
      model.parameters.zero_grad();
      tape.backward(loss);
      optimizer.step(1e-4);
      recorder.end();
    }
  } catch (const OutOfMemory& e) {  // the tape is destroyed by now, and its activations are freed
    const std::string text = e.what();
    return {batch, NAN, 0, 0, text.substr(0, text.find('\n'))};
  }
  return {batch, summarize(recorder.seconds).median, recorder.peak.allocated(), recorder.reserved, ""};
}

static void draw_trials(const Lesson& lesson, const std::vector<BatchTrial>& trials, int64_t budget) {
  LinePlot memory{
      "Peak memory by batch size", "batch size", "memory, MiB", {}, {{"budget", double(budget) / 0x1p20}}};
  BarChart speed{"Throughput by batch size", {}};
  constexpr auto kMarked = Series::Marks::LineAndDots;
  Series allocated{"allocated at the peak", {}, {}, kMarked}, reserved{"reserved", {}, {}, kMarked};
  for (const BatchTrial& t : trials) {
    if (!t.failure.empty()) break;
    for (Series* s : {&allocated, &reserved}) s->x.push_back(double(t.batch));
    allocated.y.push_back(double(t.allocated) / 0x1p20);
    reserved.y.push_back(double(t.reserved) / 0x1p20);
    const double samples = double(t.batch) / t.seconds;
    speed.bars.push_back(
        {"batch size " + std::to_string(t.batch), samples, number_text(samples) + " samples/s"});
  }
  memory.series = {allocated, reserved};
  write_file(lesson.plot("04_batch_memory.svg"), draw(memory));
  if (current().device.has_data()) write_file(lesson.plot("04_batch_speed.svg"), draw(speed));
}

void batch_size_table(const Lesson& lesson, const TransformerConfig& config, int64_t steps, int64_t budget,
                      Report& report) {
  std::cout << "\n(e) Batch sizes, doubled until the budget of " << bytes_text(budget)
            << " is exceeded; ms/step: median of " << steps << " steps\n\n";
  LessonContext context(lesson, lesson.device, budget);
  Transformer model(config);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  std::vector<BatchTrial> trials;
  for (int64_t batch = 1; trials.empty() || trials.back().failure.empty(); batch *= 2)
    trials.push_back(try_batch(model, optimizer, batch, steps));
  const Usage held = context.device.meter().now();
  trials.push_back(try_batch(model, optimizer, 1, steps));

  Table table({"batch", "ms/step", "samples/s", "allocated", "reserved", "note"});
  for (const BatchTrial& t : trials) {
    if (!t.failure.empty()) {
      table.row({std::to_string(t.batch), "", "", "", "", "out-of-memory error, caught"});
      continue;
    }
    const bool timed = context.device.has_data();
    table.row({std::to_string(t.batch), timed ? number_text(t.seconds * 1e3) : "",
               timed ? number_text(double(t.batch) / t.seconds) : "", bytes_text(t.allocated),
               bytes_text(t.reserved), &t == &trials.back() ? "training continues" : ""});
  }
  std::cout << table;
  for (const BatchTrial& t : trials)
    if (!t.failure.empty()) std::cout << t.failure << "\n";
  draw_trials(lesson, trials, budget);
  check_trials(trials, budget, held.allocated() - held.rounding, config.parameter_count(), report);
}

void check_trials(const std::vector<BatchTrial>& trials, int64_t budget, int64_t held, int64_t N,
                  Report& report) {
  const BatchTrial &first = trials.front(), &last = trials.back();
  int64_t most = 0;
  for (const BatchTrial& t : trials) most = std::max(most, t.reserved);
  report.check_at_most("largest reserved memory in (e), bytes; bound: the budget", double(most),
                       double(budget));
  report.check_equal("allocated bytes at the peak, batch 1: after the error = before it",
                     last.failure.empty() ? last.allocated : -1, first.allocated);
  report.check_equal("bytes after the error, without rounding = 16 N + workspace + scalars", held,
                     16 * N + kWorkspaceBytes + int64_t(sizeof(StepScalars) + sizeof(UpdateScalars)));
}

}  // namespace gradus
